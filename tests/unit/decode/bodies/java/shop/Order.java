package shop;

import java.io.Serializable;
import java.math.BigDecimal;
import java.math.BigInteger;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.*;
import java.util.concurrent.ConcurrentHashMap;

/** What a shop would send: something of everything. */
public class Order extends Entity {
    private static final long serialVersionUID = 1L;

    public enum State { NEW, PAID }

    public static class Item implements Serializable {
        private static final long serialVersionUID = 1L;
        String sku;
        int count;
        double price;
        Order order;

        Item(String sku, int count, double price, Order order) {
            this.sku = sku;
            this.count = count;
            this.price = price;
            this.order = order;
        }
    }

    String buyer = "王小明 😀";
    State state = State.PAID;
    boolean gift = true;
    byte small = -3;
    short medium = -300;
    int number = 123_456;
    long large = 9_007_199_254_740_993L;
    float ratio = 0.5f;
    double total = 12.25;
    char letter = '中';
    Integer boxed = -16;
    Long boxedLong = 70_000L;
    BigDecimal amount = new BigDecimal("19.90");
    Date paid = new Date(1_763_600_000_123L);
    byte[] token = {0, 1, -1};
    int[] numbers = {-16, 47, 48, 2047, -2049, 262_143, 262_144};
    long[] longs = {-8, 15, 16, 2047, 2048, 262_143, 262_144, 1L << 40};
    double[] doubles = {0, 1, -128, 32_767, 0.001, 1e300};
    String[] names = {"a", null, "b"};
    List<Item> items = new ArrayList<>();
    Map<String, Object> attributes = new HashMap<>();
    Item first;

    public Order() {
        items.add(new Item("A9", 2, 3.5, this));
        items.add(new Item("B1", 1, 5.25, null));
        first = items.get(0);
        attributes.put("channel", "app");
    }
}

class Entity implements Serializable {
    private static final long serialVersionUID = 1L;
    String id = "ORDER-20261120-0042";
}
