// sqs-consumer, a consumer library from npm, with its own SQS client: it takes the endpoint from the environment.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import { CreateQueueCommand, GetQueueAttributesCommand, SendMessageBatchCommand, SQSClient } from "@aws-sdk/client-sqs";
import { Consumer } from "sqs-consumer";

import { newName, runChecks, sleep, until } from "./checks.mjs";
import { CONSUMER_CHECKS } from "./fifo.mjs";

const MESSAGES = 500;
// The library's package.json is not among its exports, so it is read from beside its entry point.
const entry = createRequire(import.meta.url).resolve("sqs-consumer");
const folder = entry.slice(0, entry.lastIndexOf("/sqs-consumer/") + "/sqs-consumer/".length);
const { version } = JSON.parse(readFileSync(folder + "package.json", "utf8"));
const sqs = new SQSClient({});

async function newQueue(VisibilityTimeout) {
  const QueueName = newName("consumer");
  return (await sqs.send(new CreateQueueCommand({ QueueName, Attributes: { VisibilityTimeout } }))).QueueUrl;
}

async function fill(QueueUrl, count) {
  for (let start = 0; start < count; start += 10) {
    const numbers = Array.from({ length: Math.min(10, count - start) }, (_, n) => start + n);
    const Entries = numbers.map((n) => ({ Id: String(n), MessageBody: String(n) }));
    const sent = await sqs.send(new SendMessageBatchCommand({ QueueUrl, Entries }));
    assert.equal(sent.Failed ?? undefined, undefined);
  }
}

async function left(QueueUrl) {
  const AttributeNames = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"];
  const { Attributes } = await sqs.send(new GetQueueAttributesCommand({ QueueUrl, AttributeNames }));
  return Number(Attributes.ApproximateNumberOfMessages) + Number(Attributes.ApproximateNumberOfMessagesNotVisible);
}

// Counts what came; any error event of the library is a failed check.
function consume(options) {
  const seen = new Map();
  const errors = [];
  const count = (message) => seen.set(message.Body, (seen.get(message.Body) ?? 0) + 1);
  const consumer = Consumer.create({ waitTimeSeconds: 1, ...options(count) });
  for (const event of ["error", "processing_error", "timeout_error"]) {
    consumer.on(event, (error) => errors.push(`${event}: ${error.message}`));
  }
  consumer.start();
  return { consumer, seen, errors };
}

async function stopped({ consumer }) {
  const done = new Promise((resolve) => consumer.once("stopped", resolve));
  consumer.stop({ abort: true });
  await done;
}

async function eachOnce(makeOptions) {
  const queueUrl = await newQueue("60");
  await fill(queueUrl, MESSAGES);
  const running = consume((count) => ({ queueUrl, ...makeOptions(count) }));
  try {
    await until(() => running.seen.size === MESSAGES, `${MESSAGES} messages`);
    await until(async () => (await left(queueUrl)) === 0, "everything deleted");
  } finally {
    await stopped(running);
  }
  assert.deepEqual([...new Set(running.seen.values())], [1], "some came twice");
  assert.deepEqual(running.errors, []);
}

function oneByOne() {
  return eachOnce((count) => ({
    batchSize: 10,
    handleMessage: async (message) => {
      count(message);
      return message;
    },
  }));
}

function inBatches() {
  return eachOnce((count) => ({
    batchSize: 10,
    handleMessageBatch: async (messages) => {
      messages.forEach(count);
      return messages;
    },
  }));
}

// The handler takes almost three visibility timeouts; only the heartbeat keeps others from getting the message.
async function heartbeat(makeHandler, batchSize) {
  const queueUrl = await newQueue("2");
  const timing = { queueUrl, batchSize, visibilityTimeout: 2, heartbeatInterval: 1 };
  await fill(queueUrl, batchSize);
  const slow = consume((count) => ({ ...timing, ...makeHandler(count) }));
  const other = consume((count) => ({ ...timing, ...makeHandler(count) }));
  try {
    await until(async () => slow.seen.size + other.seen.size >= batchSize && (await left(queueUrl)) === 0, "all deleted");
  } finally {
    await Promise.all([stopped(slow), stopped(other)]);
  }
  const counts = [...slow.seen.values(), ...other.seen.values()];
  assert.equal(counts.reduce((sum, one) => sum + one, 0), batchSize, "a message came again while it was worked on");
  assert.deepEqual([...slow.errors, ...other.errors], []);
}

function heartbeatOneByOne() {
  return heartbeat((count) => ({
    handleMessage: async (message) => {
      count(message);
      await sleep(5500);
      return message;
    },
  }), 3);
}

function heartbeatInBatches() {
  return heartbeat((count) => ({
    handleMessageBatch: async (messages) => {
      messages.forEach(count);
      await sleep(5500);
      return messages;
    },
  }), 5);
}

// A handler that fails gives its message back at once (terminateVisibilityTimeout), and succeeds the second time.
async function failedMessageComesAgain() {
  const queueUrl = await newQueue("60");
  await fill(queueUrl, 10);
  const failedOnce = new Set();
  const running = consume((count) => ({
    queueUrl,
    batchSize: 10,
    terminateVisibilityTimeout: true,
    handleMessage: async (message) => {
      count(message);
      if (Number(message.Body) % 2 && !failedOnce.has(message.Body)) {
        failedOnce.add(message.Body);
        throw new Error("first try fails");
      }
      return message;
    },
  }));
  try {
    await until(async () => running.seen.size === 10 && (await left(queueUrl)) === 0, "everything deleted", 30_000);
  } finally {
    await stopped(running);
  }
  for (const [body, times] of running.seen) assert.equal(times, Number(body) % 2 ? 2 : 1);
  assert.deepEqual([...new Set(running.errors)], ["processing_error: Unexpected message handler failure: first try fails"]);
}

// Only what the batch handler returns is deleted; the rest comes again.
async function partialBatch() {
  const queueUrl = await newQueue("2");
  await fill(queueUrl, 10);
  const running = consume((count) => ({
    queueUrl,
    batchSize: 10,
    strictReturn: true,
    handleMessageBatch: async (messages) => {
      messages.forEach(count);
      return messages.filter((one) => Number(one.Body) % 2 === 0 || running.seen.get(one.Body) > 1);
    },
  }));
  try {
    await until(async () => running.seen.size === 10 && (await left(queueUrl)) === 0, "everything deleted", 30_000);
  } finally {
    await stopped(running);
  }
  for (const [body, times] of running.seen) assert.equal(times, Number(body) % 2 ? 2 : 1);
  assert.deepEqual(running.errors, []);
}

await runChecks("sqs-consumer (npm)", version, [
  [`${MESSAGES} messages one by one: each exactly once, all deleted`, oneByOne],
  [`${MESSAGES} messages in batch mode: each exactly once, all deleted`, inBatches],
  ["A heartbeat keeps messages that take longer than their visibility timeout", heartbeatOneByOne],
  ["The heartbeat in batch mode", heartbeatInBatches],
  ["A message whose handler fails comes again at once (terminateVisibilityTimeout)", failedMessageComesAgain],
  ["A batch of which a part is acknowledged: the rest comes again", partialBatch],
  ...CONSUMER_CHECKS,
]);
