"""The dead letters that a job sends, in an order that two looks at them share."""

from rocketlens.client.resend.dead_letters import plan_dead_letters
from rocketlens.client.resend.resend_job import Target
from tests.support.fake_cluster import T0, ask

TOPIC = "%DLQ%g"


def test_a_plan_has_the_letters_of_all_queues_and_brokers_in_the_order_of_their_times():
    async def scenario(cluster, admin):
        cluster.name_servers[0].topics[TOPIC] = [each.name for each in cluster.masters]
        stored = []
        for number in range(40):
            broker = cluster.masters[number % 3]
            broker.now_ms = T0 + number - broker.step_ms
            stored.append(broker.store(TOPIC, b"%d" % number, queue_id=number % 4))
        expected = [each.offset_msg_id for each in stored]
        for earlier, most in ((set(), 100), (set(expected[:3]), 100), (set(), 7)):
            letters = await plan_dead_letters(
                admin, "g", Target(group="g"), earlier=earlier, max_num=most
            )
            wanted = [each for each in expected if each not in earlier]
            assert [each.offset_msg_id for each in letters.messages] == wanted[:most]
            assert (letters.skipped, letters.is_cut) == (len(earlier), len(wanted) > most)

    ask(scenario, masters=3)
