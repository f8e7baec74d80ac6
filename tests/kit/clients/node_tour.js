// What the official client of Node.js does with a proxy; prints `name=value` lines.
// Arguments: endpoints, a NORMAL, a FIFO, a DELAY and a TRANSACTION topic, and groups for
// a simple, a push and an orderly push consumer.
'use strict';

const {
  ConsumeResult, Producer, PushConsumer, SimpleConsumer,
} = require('rocketmq-client-nodejs');
const {
  TransactionResolution,
} = require('rocketmq-client-nodejs/proto/apache/rocketmq/v2/definition_pb');

const [endpoints, normal, fifo, delay, transaction, simpleGroup, pushGroup, orderlyGroup] =
  process.argv.slice(2);
const PATIENCE_MS = 100000;
// Its own logger writes into the home directory.
const logger = { debug() {}, info() {}, warn() {}, error() {} };
const options = { endpoints, namespace: '', logger, requestTimeout: 10000 };

async function main() {
  await withProducer(normal, simple);
  await withProducer(delay, delayed);
  await withProducer(transaction, transactions);
  await withProducer(normal, push);
  await withProducer(fifo, orderly);
  print('end', ['reached']);
}

// One for each topic: with several it may ask for the second route when its settings are
// answered, does not notice that, and waits for five minutes until it states them again.
async function withProducer(topic, act) {
  const checked = [];
  const producer = new Producer({
    ...options,
    topics: [topic],
    checker: {
      async check(view) {
        checked.push(text(view));
        return TransactionResolution.COMMIT;
      },
    },
  });
  await producer.startup();
  await act(producer);
  if (checked.length > 0) {
    print('checked', checked);
  }
  await producer.shutdown();
}

async function simple(producer) {
  const consumer = await simpleConsumer(normal);
  const ids = [];
  for (let n = 0; n < 5; n++) {
    const receipt = await producer.send({
      topic: normal,
      body: Buffer.from(`n-${n}`),
      tag: 'A',
      keys: ['k1', 'k2'],
      properties: new Map([['colour', 'blue']]),
    });
    ids.push(receipt.messageId);
  }
  const views = await receive(consumer, 5);
  print('normal', views.map(text));
  print('same-ids', [String(same(ids, views.map(view => view.messageId)))]);
  const first = views[0];
  print('fields', [
    `${first.tag} ${first.keys.slice().sort()} ${first.properties.get('colour')}`
      + ` ${first.deliveryAttempt}`,
  ]);
  await consumer.changeInvisibleDuration(first, 1000);
  for (const view of views.slice(1)) {
    await consumer.ack(view);
  }
  const [again] = await receive(consumer, 1);
  print('again', [`${text(again) === text(first)} ${again.deliveryAttempt}`]);
  await consumer.ack(again);
  await consumer.shutdown();
}

async function delayed(producer) {
  const due = Date.now() + 3000;
  const kept = { topic: delay, body: Buffer.from('kept'), deliveryTimestamp: new Date(due) };
  await producer.send(kept);
  const receipt = await producer.send({ ...kept, body: Buffer.from('recalled') });
  const recalled = await producer.recallMessage(delay, receipt.recallHandle);
  print('recall', [String(recalled.messageId === receipt.messageId)]);
  const consumer = await simpleConsumer(delay);
  const [view] = await receive(consumer, 1);
  await consumer.ack(view);
  // A second's precision.
  print('delayed', [`${text(view)} ${Date.now() >= due - 1000}`]);
  await consumer.shutdown();
}

async function transactions(producer) {
  const committed = producer.beginTransaction();
  await producer.send({ topic: transaction, body: Buffer.from('committed') }, committed);
  await committed.commit();
  const rolledBack = producer.beginTransaction();
  await producer.send({ topic: transaction, body: Buffer.from('rolled back') }, rolledBack);
  await rolledBack.rollback();
  const orphan = producer.beginTransaction();
  await producer.send({ topic: transaction, body: Buffer.from('orphan') }, orphan);
  const consumer = await simpleConsumer(transaction);
  const views = await receive(consumer, 2);
  for (const view of views) {
    await consumer.ack(view);
  }
  print('transactions', views.map(text));
  await consumer.shutdown();
}

async function push(producer) {
  const seen = [];
  const consumer = await pushConsumer(pushGroup, normal, 'P', view => {
    seen.push(`${text(view)}:${view.deliveryAttempt}`);
    const fails = text(view) === 'p-1' && view.deliveryAttempt === 1;
    return fails ? ConsumeResult.FAILURE : ConsumeResult.SUCCESS;
  });
  for (let n = 0; n < 3; n++) {
    await producer.send({ topic: normal, body: Buffer.from(`p-${n}`), tag: 'P' });
  }
  await until(() => seen.length >= 4);
  print('push', seen);
  await consumer.shutdown();
}

async function orderly(producer) {
  const seen = [];
  for (let n = 0; n < 6; n++) {
    await producer.send({ topic: fifo, body: Buffer.from(`o-${n}`), messageGroup: 'g' });
  }
  const consumer = await pushConsumer(orderlyGroup, fifo, '*', view => {
    seen.push(text(view));
    return ConsumeResult.SUCCESS;
  });
  await until(() => seen.length >= 6);
  console.log(`orderly=${seen.join(',')}`);
  await consumer.shutdown();
}

async function simpleConsumer(topic) {
  const consumer = new SimpleConsumer({
    ...options,
    consumerGroup: simpleGroup,
    subscriptions: new Map([[topic, '*']]),
    awaitDuration: 5000,
  });
  await consumer.startup();
  return consumer;
}

async function pushConsumer(group, topic, tag, consume) {
  const consumer = new PushConsumer({
    ...options,
    consumerGroup: group,
    subscriptions: new Map([[topic, tag]]),
    messageListener: { consume: async view => consume(view) },
  });
  await consumer.startup();
  return consumer;
}

async function receive(consumer, count) {
  const views = [];
  await until(async () => {
    views.push(...await consumer.receive(16, 60000));
    return views.length >= count;
  });
  return views;
}

async function until(claim) {
  const end = Date.now() + PATIENCE_MS;
  while (!await claim() && Date.now() < end) {
    await new Promise(resolve => setTimeout(resolve, 20));
  }
}

function text(view) {
  return view.body.toString();
}

function same(one, other) {
  return JSON.stringify([...one].sort()) === JSON.stringify([...other].sort());
}

function print(name, values) {
  console.log(`${name}=${[...values].sort().join(',')}`);
}

main().then(
  () => process.exit(0), // its timers would go on
  failure => {
    console.error(failure);
    process.exit(1);
  },
);
