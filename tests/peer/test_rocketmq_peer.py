"""The peer itself works: what other tests conclude from it is worth something."""

import pytest

from tests.peer.rocketmq_peer import accepts_connections, free_ports

PRODUCER = """
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.message.Message;

public class Send {
  public static void main(String[] arguments) throws Exception {
    DefaultMQProducer producer = new DefaultMQProducer("peer_test");
    producer.setNamesrvAddr(arguments[0]);
    producer.start();
    Message message = new Message("PeerTopic", "TagA", "order-1", "hello".getBytes());
    System.out.println("sent " + producer.send(message).getMsgId());
    producer.shutdown();
    System.exit(0);
  }
}
"""


@pytest.mark.parametrize("version", ["4.9.7", "5.5.0"])
def test_a_message_sent_by_java_is_found_by_mqadmin_and_a_clean_stop_removes_abort(
    peer, version, tmp_path
):
    source = tmp_path / "Send.java"
    source.write_text(PRODUCER)
    with peer.start(version, tmp_path / "broker") as broker:
        assert (broker.store / "abort").exists()
        sent = peer.java(version, source, broker.namesrv_address)
        query = ["queryMsgByKey", "-n", broker.namesrv_address, "-t", "PeerTopic", "-k", "order-1"]
        found = peer.mqadmin(version, *query)
    assert sent.split()[-1] in found
    assert not (broker.store / "abort").exists()
    assert not accepts_connections(broker.broker_port)


def test_a_killed_broker_leaves_its_abort_file(peer, tmp_path):
    with peer.start("5.5.0", tmp_path, mappedFileSizeCommitLog=262144) as broker:
        broker.kill()
    assert (broker.store / "abort").exists()


def test_free_ports_are_free():
    port = free_ports(-2, 1)
    assert not any(accepts_connections(port + offset) for offset in (-2, 0, 1))
