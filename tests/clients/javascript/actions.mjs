// The JavaScript SDK v3 as its users use it. The endpoint comes from AWS_ENDPOINT_URL_SQS, keys and region from the
// environment, and nothing else is set: the SDK then sends to the queue's URL and compares MD5 sums, as it does by default.

import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { createRequire } from "node:module";
import * as sdk from "@aws-sdk/client-sqs";

import { newName, runChecks } from "./checks.mjs";
import { SDK_CHECKS } from "./fifo.mjs";

const { version } = createRequire(import.meta.url)("@aws-sdk/client-sqs/package.json");
const sqs = new sdk.SQSClient({});

async function newQueue(Attributes = {}) {
  return (await sqs.send(new sdk.CreateQueueCommand({ QueueName: newName("js"), Attributes }))).QueueUrl;
}

async function receive(QueueUrl, options = {}) {
  const asked = { QueueUrl, MaxNumberOfMessages: 10, WaitTimeSeconds: 5, ...options };
  return (await sqs.send(new sdk.ReceiveMessageCommand(asked))).Messages ?? [];
}

async function queueIsMadeAndFound() {
  const QueueName = newName("js");
  const { QueueUrl } = await sqs.send(new sdk.CreateQueueCommand({ QueueName, tags: { team: "größe" } }));
  assert.equal((await sqs.send(new sdk.GetQueueUrlCommand({ QueueName }))).QueueUrl, QueueUrl);
  const listed = await sqs.send(new sdk.ListQueuesCommand({ QueueNamePrefix: QueueName }));
  assert.deepEqual(listed.QueueUrls, [QueueUrl]);
  assert.deepEqual((await sqs.send(new sdk.ListQueueTagsCommand({ QueueUrl }))).Tags, { team: "größe" });
  await sqs.send(new sdk.TagQueueCommand({ QueueUrl, Tags: { stage: "test" } }));
  await sqs.send(new sdk.UntagQueueCommand({ QueueUrl, TagKeys: ["team"] }));
  assert.deepEqual((await sqs.send(new sdk.ListQueueTagsCommand({ QueueUrl }))).Tags, { stage: "test" });
  await sqs.send(new sdk.DeleteQueueCommand({ QueueUrl }));
  await assert.rejects(sqs.send(new sdk.GetQueueUrlCommand({ QueueName })), sdk.QueueDoesNotExist);
}

async function attributes() {
  const QueueUrl = await newQueue({ VisibilityTimeout: "11" });
  await sqs.send(new sdk.SetQueueAttributesCommand({ QueueUrl, Attributes: { MessageRetentionPeriod: "600" } }));
  const { Attributes } = await sqs.send(new sdk.GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["All"] }));
  assert.equal(Attributes.VisibilityTimeout, "11");
  assert.equal(Attributes.MessageRetentionPeriod, "600");
  assert.match(Attributes.QueueArn, /^arn:aws:sqs:/);
}

// The SDK compares the body's MD5 sum; that of the attributes is ours to compare.
function md5OfAttributes(attributes) {
  const digest = createHash("md5");
  const length = (bytes) => {
    const four = Buffer.alloc(4);
    four.writeUInt32BE(bytes.length);
    return four;
  };
  for (const name of Object.keys(attributes).sort()) {
    const { DataType, StringValue, BinaryValue } = attributes[name];
    for (const part of [Buffer.from(name), Buffer.from(DataType)]) digest.update(length(part)).update(part);
    const raw = Buffer.from(BinaryValue ?? StringValue);
    digest.update(Buffer.of(BinaryValue ? 2 : 1)).update(length(raw)).update(raw);
  }
  return digest.digest("hex");
}

async function messageWithEverything() {
  const QueueUrl = await newQueue();
  const MessageBody = '{"größe": "<&> \u{1F600}\\n"}\r\n\t';
  const MessageAttributes = {
    text: { DataType: "String", StringValue: "é <&>" },
    number: { DataType: "Number.int", StringValue: "42" },
    binary: { DataType: "Binary", BinaryValue: Uint8Array.from({ length: 256 }, (_, index) => index) },
  };
  const sent = await sqs.send(new sdk.SendMessageCommand({ QueueUrl, MessageBody, MessageAttributes }));
  assert.equal(sent.MD5OfMessageBody, createHash("md5").update(MessageBody).digest("hex"));
  assert.equal(sent.MD5OfMessageAttributes, md5OfAttributes(MessageAttributes));
  const asked = { MessageAttributeNames: ["All"], MessageSystemAttributeNames: ["All"] };
  const [message] = await receive(QueueUrl, asked);
  assert.equal(message.Body, MessageBody);
  assert.equal(message.MessageId, sent.MessageId);
  assert.equal(message.MD5OfMessageAttributes, sent.MD5OfMessageAttributes);
  assert.deepEqual(message.MessageAttributes.binary.BinaryValue, MessageAttributes.binary.BinaryValue);
  assert.equal(message.MessageAttributes.text.StringValue, "é <&>");
  assert.equal(message.Attributes.ApproximateReceiveCount, "1");
  await sqs.send(new sdk.DeleteMessageCommand({ QueueUrl, ReceiptHandle: message.ReceiptHandle }));
  assert.deepEqual(await receive(QueueUrl, { VisibilityTimeout: 0, WaitTimeSeconds: 0 }), []);
}

async function batches() {
  const QueueUrl = await newQueue();
  const good = Array.from({ length: 9 }, (_, n) => ({ Id: `m${n}`, MessageBody: `body ${n}` }));
  const late = { Id: "bad", MessageBody: "late", DelaySeconds: 901 };
  const sent = await sqs.send(new sdk.SendMessageBatchCommand({ QueueUrl, Entries: [...good, late] }));
  assert.deepEqual(sent.Successful.map((one) => one.Id), good.map((one) => one.Id));
  const { Id, Code, SenderFault } = sent.Failed[0];
  assert.deepEqual({ Id, Code, SenderFault }, { Id: "bad", Code: "InvalidParameterValue", SenderFault: true });
  const messages = await receive(QueueUrl);
  assert.deepEqual(messages.map((one) => one.Body).sort(), good.map((one) => one.MessageBody));
  const receipts = messages.map((one, n) => ({ Id: `r${n}`, ReceiptHandle: one.ReceiptHandle }));
  const Entries = [...receipts, { Id: "bad", ReceiptHandle: "none" }];
  const longer = Entries.map((one) => ({ ...one, VisibilityTimeout: 60 }));
  const changed = await sqs.send(new sdk.ChangeMessageVisibilityBatchCommand({ QueueUrl, Entries: longer }));
  const deleted = await sqs.send(new sdk.DeleteMessageBatchCommand({ QueueUrl, Entries }));
  for (const answer of [changed, deleted]) {
    assert.equal(answer.Successful.length, 9);
    assert.deepEqual(answer.Failed.map((one) => one.Code), ["ReceiptHandleIsInvalid"]);
  }
}

async function longPoll() {
  const QueueUrl = await newQueue();
  let started = Date.now();
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 1 }), []);
  assert.ok(Date.now() - started >= 900);
  const sent = setTimeout(() => sqs.send(new sdk.SendMessageCommand({ QueueUrl, MessageBody: "wake" })), 1000);
  started = Date.now();
  const [message] = await receive(QueueUrl, { WaitTimeSeconds: 20 });
  clearTimeout(sent);
  assert.equal(message.Body, "wake");
  assert.ok(Date.now() - started < 12_000);
}

async function visibility() {
  const QueueUrl = await newQueue();
  await sqs.send(new sdk.SendMessageCommand({ QueueUrl, MessageBody: "again" }));
  const [first] = await receive(QueueUrl);
  const { ReceiptHandle } = first;
  await sqs.send(new sdk.ChangeMessageVisibilityCommand({ QueueUrl, ReceiptHandle, VisibilityTimeout: 0 }));
  const [second] = await receive(QueueUrl, { MessageSystemAttributeNames: ["ApproximateReceiveCount"] });
  assert.equal(second.MessageId, first.MessageId);
  assert.deepEqual(second.Attributes, { ApproximateReceiveCount: "2" });
}

async function typedErrors() {
  const QueueUrl = await newQueue();
  const gone = QueueUrl + "-none";
  const wrong = [
    [new sdk.GetQueueUrlCommand({ QueueName: "no-such-queue" }), sdk.QueueDoesNotExist],
    [new sdk.SendMessageCommand({ QueueUrl: gone, MessageBody: "x" }), sdk.QueueDoesNotExist],
    [new sdk.SendMessageCommand({ QueueUrl, MessageBody: "\u0000" }), sdk.InvalidMessageContents],
    [new sdk.DeleteMessageCommand({ QueueUrl, ReceiptHandle: "none" }), sdk.ReceiptHandleIsInvalid],
    [new sdk.SendMessageBatchCommand({ QueueUrl, Entries: [] }), sdk.EmptyBatchRequest],
    [new sdk.GetQueueAttributesCommand({ QueueUrl, AttributeNames: ["Nonsense"] }), sdk.InvalidAttributeName],
  ];
  for (const [command, kind] of wrong) {
    const error = await sqs.send(command).then(() => assert.fail("no error came"), (caught) => caught);
    assert.ok(error instanceof kind, `${kind.name} was wanted, ${error.name} came: ${error.message}`);
    assert.equal(error.$fault, "client");
    assert.ok(error.$metadata.requestId, "an error names its request");
  }
}

async function purge() {
  const QueueUrl = await newQueue();
  await sqs.send(new sdk.SendMessageCommand({ QueueUrl, MessageBody: "gone" }));
  await sqs.send(new sdk.PurgeQueueCommand({ QueueUrl }));
  assert.deepEqual(await receive(QueueUrl, { WaitTimeSeconds: 1 }), []);
  await assert.rejects(sqs.send(new sdk.PurgeQueueCommand({ QueueUrl })), sdk.PurgeQueueInProgress);
}

async function paginators() {
  const QueueNamePrefix = newName("page");
  const made = [];
  for (let number = 0; number < 5; number += 1) {
    const QueueName = `${QueueNamePrefix}-${number}`;
    made.push((await sqs.send(new sdk.CreateQueueCommand({ QueueName }))).QueueUrl);
  }
  const found = [];
  let pages = 0;
  for await (const page of sdk.paginateListQueues({ client: sqs, pageSize: 2 }, { QueueNamePrefix })) {
    found.push(...(page.QueueUrls ?? []));
    pages += 1;
  }
  assert.deepEqual(found.sort(), made.sort());
  assert.ok(pages >= 3);
}

async function abortedPoll() {
  const QueueUrl = await newQueue({ VisibilityTimeout: "60" });
  const abort = new AbortController();
  const command = new sdk.ReceiveMessageCommand({ QueueUrl, WaitTimeSeconds: 20 });
  const poll = sqs.send(command, { abortSignal: abort.signal });
  setTimeout(() => abort.abort(), 1000);
  await assert.rejects(poll, { name: "AbortError" });
  await new Promise((resolve) => setTimeout(resolve, 500));
  await sqs.send(new sdk.SendMessageCommand({ QueueUrl, MessageBody: "not lost" }));
  assert.deepEqual((await receive(QueueUrl)).map((one) => one.Body), ["not lost"]);
}

async function manyAtOnce() {
  const QueueUrl = await newQueue({ VisibilityTimeout: "120" });
  const send = (n) => sqs.send(new sdk.SendMessageCommand({ QueueUrl, MessageBody: String(n) }));
  await Promise.all(Array.from({ length: 200 }, (_, n) => send(n)));
  const seen = new Map();
  let received = 0;
  async function consume() {
    while (received < 200) {
      for (const message of await receive(QueueUrl, { WaitTimeSeconds: 1 })) {
        received += 1;
        seen.set(message.Body, (seen.get(message.Body) ?? 0) + 1);
        await sqs.send(new sdk.DeleteMessageCommand({ QueueUrl, ReceiptHandle: message.ReceiptHandle }));
      }
    }
  }
  await Promise.all([consume(), consume(), consume()]);
  assert.equal(seen.size, 200);
  assert.deepEqual([...new Set(seen.values())], [1]);
}

await runChecks("JavaScript SDK v3 (@aws-sdk/client-sqs)", version, [
  ["Create, get URL, list, tag, untag, delete a queue", queueIsMadeAndFound],
  ["Queue attributes set and read", attributes],
  ["A message with text, number and binary attributes, MD5 sums compared by the SDK", messageWithEverything],
  ["The three batch commands, each with an entry that fails", batches],
  ["A long poll is woken by a message, and ends empty after its time", longPoll],
  ["Visibility changed to 0 gives a message back at once, counted as received twice", visibility],
  ["Errors are the classes the SDK exports", typedErrors],
  ["Purge, and PurgeQueueInProgress within a minute", purge],
  ["paginateListQueues walks all pages", paginators],
  ["A long poll that is aborted takes no message with it", abortedPoll],
  ["200 sends at once, three consumers: each message once", manyAtOnce],
  ...SDK_CHECKS,
]);
