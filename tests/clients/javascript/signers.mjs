// Clients from npm that are not Amazon's: aws-lite, which signs with aws4 and sends by the query protocol what it
// receives in JSON; and sqs-producer, a library over Amazon's SDK.

import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { readFileSync } from "node:fs";
import awsLite from "@aws-lite/client";
import litePlugin from "@aws-lite/sqs";
import { CreateQueueCommand, ReceiveMessageCommand, SQSClient } from "@aws-sdk/client-sqs";
import { Producer } from "sqs-producer";

import { newName, runChecks } from "./checks.mjs";

const sqs = new SQSClient({});
const endpoint = process.env.AWS_ENDPOINT_URL_SQS;
const BODY = "größe & <b> 'quoted' \"twice\" % + a=b&c=d\n";

function versionOf(name) {
  const entry = createRequire(import.meta.url).resolve(name);
  const folder = entry.slice(0, entry.lastIndexOf(`/${name}/`) + name.length + 2);
  return JSON.parse(readFileSync(folder + "package.json", "utf8")).version;
}

async function newQueue(suffix = "", Attributes = {}) {
  return (await sqs.send(new CreateQueueCommand({ QueueName: newName("lite") + suffix, Attributes }))).QueueUrl;
}

function lite(options = {}) {
  return awsLite({ endpoint, plugins: [litePlugin], ...options });
}

async function liteRoundTrip() {
  const aws = await lite();
  const QueueUrl = await newQueue();
  const sent = await aws.SQS.SendMessage({ QueueUrl, MessageBody: BODY });
  const { Messages } = await aws.SQS.ReceiveMessage({ QueueUrl, WaitTimeSeconds: 5 });
  assert.equal(Messages.length, 1);
  assert.equal(Messages[0].Body, BODY);
  assert.equal(Messages[0].MessageId, sent.MessageId);
  await aws.SQS.DeleteMessage({ QueueUrl, ReceiptHandle: Messages[0].ReceiptHandle });
  const { Attributes } = await aws.SQS.GetQueueAttributes({ QueueUrl, AttributeNames: ["All"] });
  assert.equal(Attributes.ApproximateNumberOfMessagesNotVisible, "0");
}

async function liteErrors() {
  const aws = await lite();
  const wrong = await lite({ secretAccessKey: "x".repeat(40), accessKeyId: process.env.AWS_ACCESS_KEY_ID });
  const QueueUrl = await newQueue();
  const missing = QueueUrl.replace(/[^/]+$/, "no-such-queue");
  for (const [call, code, status] of [
    [() => aws.SQS.ReceiveMessage({ QueueUrl: missing }), "QueueDoesNotExist", 400],
    [() => aws.SQS.SendMessage({ QueueUrl: missing, MessageBody: "x" }), "AWS.SimpleQueueService.NonExistentQueue", 400],
    [() => aws.SQS.DeleteMessage({ QueueUrl, ReceiptHandle: "nonsense" }), "ReceiptHandleIsInvalid", 400],
    [() => wrong.SQS.ReceiveMessage({ QueueUrl }), "SignatureDoesNotMatch", 403],
  ]) {
    await assert.rejects(call, (error) => {
      assert.equal(error.code, code);
      assert.equal(error.statusCode, status);
      return true;
    });
  }
}

async function producerSends() {
  const queueUrl = await newQueue();
  const producer = Producer.create({ queueUrl });
  const messages = Array.from({ length: 25 }, (_, n) => ({
    id: `id-${n}`,
    body: String(n),
    delaySeconds: 0,
    messageAttributes: { kind: { DataType: "String", StringValue: "test" } },
  }));
  assert.equal((await producer.send(messages)).length, 25);
  assert.equal(await producer.queueSize(), 25);
  const answer = await sqs.send(new ReceiveMessageCommand({ QueueUrl: queueUrl, MessageAttributeNames: ["All"] }));
  assert.equal(answer.Messages[0].MessageAttributes.kind.StringValue, "test");
}

async function producerFails() {
  const producer = Producer.create({ queueUrl: await newQueue() });
  const failing = [{ id: "good", body: "x" }, { id: "bad", body: "\u0000" }];
  await assert.rejects(producer.send(failing), (error) => {
    assert.deepEqual(error.failedMessages, ["bad"]);
    return true;
  });
}

async function producerFifo() {
  const queueUrl = await newQueue(".fifo", { FifoQueue: "true" });
  const producer = Producer.create({ queueUrl });
  const one = (n) => ({ id: `id-${n}`, body: String(n), groupId: "g", deduplicationId: `d-${n}` });
  await producer.send([one(1), one(2), one(3)]);
  await producer.send(one(1));
  const answer = await sqs.send(new ReceiveMessageCommand({ QueueUrl: queueUrl, MaxNumberOfMessages: 10 }));
  assert.deepEqual(answer.Messages.map((message) => message.Body), ["1", "2", "3"]);
}

await runChecks(
  "aws-lite and sqs-producer (npm)",
  `@aws-lite/sqs ${versionOf("@aws-lite/sqs")}, sqs-producer ${versionOf("sqs-producer")}`,
  [
    ["aws-lite: sends by the query protocol and receives in JSON, with a body full of signs that need quoting", liteRoundTrip],
    ["aws-lite: errors have the code and the status that the library reads, in both protocols", liteErrors],
    ["sqs-producer: 25 messages with attributes in batches, and the size of the queue", producerSends],
    ["sqs-producer: the ids of entries that were refused", producerFails],
    ["sqs-producer: FIFO with groups and deduplication ids", producerFifo],
  ],
);
