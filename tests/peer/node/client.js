// A producer or a push consumer of ali-ons, as tests/peer/foreign_client.py has it.
'use strict';

const { Consumer, Producer, Message } = require('ali-ons');

const [nameSrv, action, group, topic, ...more] = process.argv.slice(2);
const quiet = { debug() {}, info() {}, warn() {}, error: error => console.log('error', error) };
// ali-ons asks for one even where the name server is given; it is not used then.
const httpclient = { request() { throw new Error('no HTTP is needed'); } };
const common = { nameSrv, httpclient, logger: quiet, pollNameServerInteval: 1000, rebalanceInterval: 1000 };

async function send([how, count]) {
  const producer = new Producer({ ...common, producerGroup: group, sendMsgTimeout: 60000 });
  producer.on('error', error => console.log('error', error));
  await producer.ready();
  for (let number = 0; number < Number(count); number++) {
    const message = new Message(topic, 'AB'[number % 2], String(number));
    message.keys = [`${topic}-${number}`];
    message.properties.number = String(number);
    if (how === 'delayed') {
      message.delayTimeLevel = 1;
    }
    const result = await producer.send(message);
    const { queueId } = result.messageQueue;
    console.log('sent', number, result.sendStatus, message.properties.UNIQ_KEY || result.msgId, result.msgId, queueId, result.queueOffset);
  }
  await producer.close();
}

async function consume([expression, how, refused]) {
  const consumer = new Consumer({
    ...common,
    consumerGroup: group,
    isBroadcast: how === 'broadcasting',
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  consumer.on('error', () => {});
  consumer.subscribe(topic, expression, async message => {
    const body = message.body.toString();
    if (body === refused && message.reconsumeTimes === 0) {
      console.log('refused', body, message.reconsumeTimes);
      throw new Error('as it was told to');
    }
    console.log('got', body, message.reconsumeTimes, message.tags, message.keys);
  });
  await consumer.ready();
  console.log('started');
  await new Promise(resolve => process.stdin.on('end', resolve).resume());
  await consumer.close();
}

({ send, consume })[action](more).then(() => process.exit(0), error => {
  console.log('failed', error);
  process.exit(1);
});
