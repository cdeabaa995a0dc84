// FIFO queues and dead letters with the SDK, and sqs-consumer on a FIFO queue.

import assert from "node:assert/strict";
import * as sdk from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

import { newName, until } from "./checks.mjs";

const GROUPS = 5;
const IN_GROUP = 40;
const sqs = new sdk.SQSClient({});

async function newQueue() {
  const Attributes = { FifoQueue: "true", ContentBasedDeduplication: "true", VisibilityTimeout: "60" };
  return (await sqs.send(new sdk.CreateQueueCommand({ QueueName: newName("js") + ".fifo", Attributes }))).QueueUrl;
}

async function receive(QueueUrl, options = {}) {
  const MessageSystemAttributeNames = ["All"];
  const asked = { QueueUrl, MessageSystemAttributeNames, MaxNumberOfMessages: 10, WaitTimeSeconds: 5, ...options };
  return (await sqs.send(new sdk.ReceiveMessageCommand(asked))).Messages ?? [];
}

async function orderAndDeduplication() {
  const QueueUrl = await newQueue();
  const send = (MessageGroupId, MessageBody, more = {}) =>
    sqs.send(new sdk.SendMessageCommand({ QueueUrl, MessageGroupId, MessageBody, ...more }));
  const first = await send("a", "a1", { MessageDeduplicationId: "same" });
  const again = await send("a", "another body", { MessageDeduplicationId: "same" });
  assert.equal(again.MessageId, first.MessageId);
  assert.equal(again.SequenceNumber, first.SequenceNumber);
  await send("a", "a2");
  await send("b", "b1");
  const [one] = await receive(QueueUrl, { MaxNumberOfMessages: 1 });
  assert.equal(one.Body, "a1");
  assert.equal(one.Attributes.MessageGroupId, "a");
  assert.deepEqual((await receive(QueueUrl)).map((message) => message.Body), ["b1"]);
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 0 }), []);
  await sqs.send(new sdk.DeleteMessageCommand({ QueueUrl, ReceiptHandle: one.ReceiptHandle }));
  assert.deepEqual((await receive(QueueUrl)).map((message) => message.Body), ["a2"]);
  const late = sqs.send(new sdk.SendMessageCommand({ QueueUrl, MessageBody: "no group" }));
  await assert.rejects(late, { name: "MissingParameter" });
}

async function deadLetters() {
  const arn = async (QueueUrl) => {
    const asked = new sdk.GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["QueueArn"] });
    return (await sqs.send(asked)).Attributes.QueueArn;
  };
  const make = async (Attributes) =>
    (await sqs.send(new sdk.CreateQueueCommand({ QueueName: newName("js"), Attributes }))).QueueUrl;
  const target = await make({});
  const RedrivePolicy = JSON.stringify({ deadLetterTargetArn: await arn(target), maxReceiveCount: 2 });
  const source = await make({ RedrivePolicy, VisibilityTimeout: "0" });
  await sqs.send(new sdk.SendMessageCommand({ QueueUrl: source, MessageBody: "poison" }));
  for (const _ of [1, 2]) assert.equal((await receive(source)).length, 1);
  assert.deepEqual(await receive(source, { WaitTimeSeconds: 1 }), []);
  assert.deepEqual((await receive(target, { WaitTimeSeconds: 10 })).map((one) => one.Body), ["poison"]);
}

async function consumerOnFifo() {
  const queueUrl = await newQueue();
  for (let start = 0; start < GROUPS * IN_GROUP; start += 10) {
    const Entries = Array.from({ length: 10 }, (_, n) => start + n).map((n) => ({
      Id: String(n),
      MessageBody: JSON.stringify({ group: n % GROUPS, number: n }),
      MessageGroupId: `group-${n % GROUPS}`,
    }));
    const sent = await sqs.send(new sdk.SendMessageBatchCommand({ QueueUrl: queueUrl, Entries }));
    assert.equal(sent.Successful.length, 10);
  }
  const came = new Map(Array.from({ length: GROUPS }, (_, group) => [group, []]));
  const errors = [];
  const handleMessageBatch = async (messages) => {
    for (const message of messages) {
      const { group, number } = JSON.parse(message.Body);
      came.get(group).push(number);
    }
    return messages;
  };
  const options = { queueUrl, batchSize: 10, waitTimeSeconds: 1, suppressFifoWarning: true, handleMessageBatch };
  const consumers = [Consumer.create(options), Consumer.create(options)];
  for (const consumer of consumers) {
    consumer.on("error", (error) => errors.push(error.message));
    consumer.on("processing_error", (error) => errors.push(error.message));
    consumer.start();
  }
  const count = () => [...came.values()].reduce((sum, numbers) => sum + numbers.length, 0);
  try {
    await until(() => count() >= GROUPS * IN_GROUP, "all messages");
  } finally {
    consumers.forEach((consumer) => consumer.stop());
  }
  for (const [group, numbers] of came) {
    const wanted = Array.from({ length: IN_GROUP }, (_, n) => n * GROUPS + group);
    assert.deepEqual(numbers, wanted, `group ${group} came in another order, or twice`);
  }
  assert.deepEqual(errors, []);
}

export const SDK_CHECKS = [
  ["FIFO: order in a group, a held group, deduplication, a missing group", orderAndDeduplication],
  ["A message received maxReceiveCount times goes to the dead-letter queue", deadLetters],
];
export const CONSUMER_CHECKS = [
  [`FIFO: two consumers, ${GROUPS} groups of ${IN_GROUP}: each in its order, exactly once`, consumerOnFifo],
];
