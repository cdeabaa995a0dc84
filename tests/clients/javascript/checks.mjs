// What every JavaScript client program says, line by line, as tests/clients/programs/checks.py describes it.

import { randomUUID } from "node:crypto";

const CHECK_TIMEOUT_MS = 120_000;

export function say(line) {
  process.stdout.write(JSON.stringify(line) + "\n");
}

// `checks` is a list of [title, async function]; the exit code says whether all passed.
export async function runChecks(client, version, checks) {
  say({ client, version, checks: checks.map(([title]) => title) });
  let failed = 0;
  for (const [check, run] of checks) {
    const started = Date.now();
    let detail = "";
    try {
      await within(CHECK_TIMEOUT_MS, run());
    } catch (error) {
      failed += 1;
      detail = String(error.stack ?? error).slice(-2000) || "failed without a word";
    }
    say({ check, passed: !detail, detail, seconds: Math.round((Date.now() - started) / 100) / 10 });
  }
  // A consumer that a failed check left running must not keep the program alive.
  process.exit(failed ? 1 : 0);
}

function within(ms, promise) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`not done within ${ms} ms`)), ms);
  });
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
}

export function newName(prefix) {
  return `${prefix}-${randomUUID().slice(0, 13)}`;
}

export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

export async function until(condition, what, timeoutMs = 60_000) {
  const end = Date.now() + timeoutMs;
  while (!(await condition())) {
    if (Date.now() > end) throw new Error(`not within ${timeoutMs} ms: ${what}`);
    await sleep(50);
  }
}
