import java.io.BufferedInputStream;
import java.io.BufferedOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;

/**
 * Says what this JDK makes of byte strings. Standard input: i32 length and that many bytes,
 * repeated until the end. Standard output, for each: i32 number of UTF-16 units, the units, i32
 * hashCode, i8 1 if Integer.parseInt takes it and 0 if not, i32 its value (0 if not).
 */
public final class JavaText {
    public static void main(String[] arguments) throws IOException {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in, 1 << 16));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out, 1 << 16));
        while (true) {
            byte[] head = in.readNBytes(4);
            if (head.length < 4) {
                break;
            }
            int length = java.nio.ByteBuffer.wrap(head).getInt();
            String text = new String(in.readNBytes(length), StandardCharsets.UTF_8);
            out.writeInt(text.length());
            out.writeChars(text);
            out.writeInt(text.hashCode());
            int value = 0;
            boolean parsed = true;
            try {
                value = Integer.parseInt(text);
            } catch (NumberFormatException error) {
                parsed = false;
            }
            out.writeBoolean(parsed);
            out.writeInt(value);
        }
        out.flush();
    }
}
