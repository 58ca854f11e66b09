"""The peer itself works: what other tests conclude from it is worth something."""

import pytest

from tests.peer.rocketmq_peer import VERSIONS, accepts_connections, free_ports

PRODUCER = """
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Send {
  public static void main(String[] arguments) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("peer_test");
    producer.setNamesrvAddr(arguments[0]);
    producer.setSendMsgTimeout(30_000);
    producer.start();
    Message message = new Message("PeerTopic", "TagA", "order-1", "hello".getBytes());
    // On a busy machine the first question to a name server can take longer than Java waits.
    for (int attempt = 1; ; attempt++) {
      try {
        System.out.println("sent " + producer.send(message).getMsgId());
        System.exit(0);
      } catch (Exception failed) {
        failed.printStackTrace();
        if (attempt == 5) {
          System.exit(1);
        }
      }
    }
  }
}
"""


@pytest.mark.parametrize("version", VERSIONS)
def test_a_message_sent_by_java_is_found_by_mqadmin(peer, real_broker, version, tmp_path):
    source = tmp_path / "Send.java"
    source.write_text(PRODUCER)
    broker = real_broker(version)
    sent = peer.java(version, source, broker.namesrv_address)
    query = ["queryMsgByKey", "-n", broker.namesrv_address, "-t", "PeerTopic", "-k", "order-1"]
    assert sent.split()[-1] in peer.mqadmin(version, *query)


def test_free_ports_are_free():
    port = free_ports(-2, 1)
    assert not any(accepts_connections(port + offset) for offset in (-2, 0, 1))
