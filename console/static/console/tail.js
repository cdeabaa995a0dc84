// The live tail of a queue: a websocket of a front end, opened with a ticket that is good once.
"use strict";
(() => {
  const ROWS_MAX = 300;
  const RETRIES_MS = [1000, 2000, 5000, 10000, 20000];
  const ENDED = { 4401: "Your session has ended. Sign in again.", 4403: "You may not read messages of this queue any more.", 4404: "The queue does not exist any more." };
  const WORDS = { waiting: ["Waiting", "good"], in_flight: ["In flight", "warn"], delayed: ["Delayed", ""] };
  let tail = null;

  class Tail {
    constructor(box) {
      this.box = box;
      this.paused = false;
      this.socket = null;
      this.tries = 0;
      this.recent = [];
      this.clear();
      this.one("[data-tail-form]").addEventListener("submit", (event) => { event.preventDefault(); event.stopPropagation(); this.filter(); });
      this.one("[data-tail-pause]").addEventListener("click", () => this.pause(!this.paused));
      this.one("[data-tail-clear]").addEventListener("click", () => this.clear());
      this.clock = setInterval(() => this.tick(), 1000);
      this.connect();
    }

    one(selector) { return this.box.querySelector(selector); }
    get text() { return this.one("input[name=text]").value; }

    async connect() {
      this.badge("Connecting", "");
      let made;
      try {
        const token = JSON.parse(document.body.getAttribute("hx-headers"));
        const answer = await fetch(this.box.dataset.tail, { method: "POST", headers: { ...token, "HX-Request": "true" }, redirect: "manual" });
        if (!answer.ok || !(answer.headers.get("Content-Type") || "").startsWith("application/json")) { this.refused(answer); return; }
        made = await answer.json();
      } catch { this.again("The console does not answer."); return; }
      if (this.box.isConnected && tail === this) this.open(made);
    }

    open(made) {
      const scheme = location.protocol === "https:" ? "wss:" : "ws:";
      const socket = new WebSocket(`${scheme}//${location.host}${made.socket}`);
      this.socket = socket;
      socket.onopen = () => {
        socket.send(JSON.stringify({ type: "open", ticket: made.ticket, text: this.text }));
        if (this.paused || document.hidden) this.say({ type: "pause" });
      };
      socket.onmessage = (event) => this.take(JSON.parse(event.data));
      socket.onclose = (event) => { if (this.socket === socket) this.closed(event); };
    }

    say(frame) { if (this.socket && this.socket.readyState === WebSocket.OPEN) this.socket.send(JSON.stringify(frame)); }

    take(frame) {
      if (frame.type === "live") { this.tries = 0; this.state(""); this.show(); }
      if (frame.type === "held") { this.badge("Waiting", "warn"); this.state(frame.detail); }
      if (frame.type === "messages") this.add(frame);
    }

    refused(answer) {
      if (answer.status === 403 || answer.status === 404) { this.ended(ENDED[answer.status + 4000]); return; }
      if (answer.type === "opaqueredirect" || answer.status === 204) { this.ended(ENDED[4401]); return; }
      this.again("The console cannot open a live tail at the moment.");
    }

    closed(event) {
      this.socket = null;
      if (ENDED[event.code]) this.ended(ENDED[event.code]);
      else if (event.code === 4429) this.again("Too many live tails of this account are open.");
      else this.again(event.reason || "The connection was lost.");
    }

    ended(text) { this.badge("Ended", "bad"); this.state(text); this.one("[data-tail-pause]").disabled = true; }

    // What comes until it is connected again is not shown: a tail begins at the end of the queue.
    again(text) {
      const wait = RETRIES_MS[Math.min(this.tries, RETRIES_MS.length - 1)];
      this.tries += 1;
      this.badge("Not connected", "warn");
      this.state(`${text} Connecting again in ${wait / 1000} s; what comes until then is not shown.`);
      this.retry = setTimeout(() => { if (tail === this) this.connect(); }, wait);
    }

    filter() {
      const address = new URL(location.href);
      if (this.text) address.searchParams.set("text", this.text); else address.searchParams.delete("text");
      history.replaceState(history.state, "", address);
      this.clear();
      this.say({ type: "filter", text: this.text });
    }

    pause(paused) {
      this.paused = paused;
      const button = this.one("[data-tail-pause]");
      button.textContent = paused ? "Resume" : "Pause";
      button.setAttribute("aria-pressed", String(paused));
      this.say({ type: paused ? "pause" : "resume" });
      this.show();
    }

    hidden(is) { if (!this.paused) this.say({ type: is ? "pause" : "resume" }); }

    show() {
      if (!this.socket) return;
      this.badge(this.paused ? "Paused" : "Live", this.paused ? "warn" : "good");
    }

    clear() {
      Object.assign(this, { found: 0, shown: 0, passed: 0, recent: [] });
      this.one("[data-tail-rows]").replaceChildren();
      this.draw();
    }

    add(frame) {
      this.found += frame.found;
      this.shown += frame.messages.length;
      this.passed += frame.passed;
      this.recent.push([performance.now(), frame.found]);
      const rows = this.one("[data-tail-rows]");
      const piece = document.createDocumentFragment();
      for (const message of frame.messages.reverse()) piece.append(this.row(message));
      rows.prepend(piece);
      while (rows.children.length > ROWS_MAX) rows.lastElementChild.remove();
      this.draw();
    }

    row(message) {
      const row = this.one("[data-tail-row]").content.cloneNode(true);
      const part = (name) => row.querySelector(`[data-row-${name}]`);
      const [word, kind] = WORDS[message.state];
      part("state").textContent = word;
      if (kind) part("state").classList.add(kind);
      const sent = new Date(message.sent_ms);
      part("time").textContent = sent.toLocaleTimeString(undefined, { hourCycle: "h23" });
      part("time").dateTime = sent.toISOString();
      part("time").title = sent.toISOString();
      const body = message.unreadable ? "No key opens it" : message.body;
      part("line").textContent = body.slice(0, 200);
      part("body").textContent = pretty(body);
      part("copy").addEventListener("click", (event) => copy(body, event.currentTarget));
      if (message.body_cut_from_chars) {
        part("more").hidden = false;
        part("more").textContent = `The first ${body.length.toLocaleString()} of ${message.body_cut_from_chars.toLocaleString()} characters.`;
      }
      if (message.id) part("link").href = `${this.box.dataset.tailMessages}?ids=${encodeURIComponent(message.id)}`; else part("link").remove();
      for (const [name, label] of [["id", "Id"], ["group", "Group"], ["sequence_number", "Sequence"], ["tag", "Tag"]]) {
        if (message[name] === undefined) continue;
        const [term, value] = ["dt", "dd"].map((kind) => document.createElement(kind));
        term.textContent = label;
        value.textContent = message[name];
        value.className = "mono";
        part("pairs").append(term, value);
      }
      return row;
    }

    draw() {
      const put = (name, value) => { this.one(`[data-tail-${name}]`).textContent = value.toLocaleString(); };
      put("found", this.found);
      put("shown", this.shown);
      put("left", this.found - this.shown);
      const passed = this.one("[data-tail-passed]");
      passed.hidden = !this.passed;
      passed.textContent = `The queue moves faster than this page follows: up to ${this.passed.toLocaleString()} messages were passed over without a look.`;
      const none = !this.one("[data-tail-rows]").children.length;
      this.one("[data-tail-rows]").hidden = none;
      this.one("[data-tail-empty]").hidden = !none;
    }

    tick() {
      if (!this.box.isConnected) { stop(); return; }
      const now = performance.now();
      this.recent = this.recent.filter(([at]) => now - at < 5000);
      const sum = this.recent.reduce((total, [, found]) => total + found, 0);
      this.one("[data-tail-rate]").textContent = (sum / 5).toLocaleString(undefined, { maximumFractionDigits: sum < 50 ? 1 : 0 });
    }

    badge(text, kind) {
      const badge = this.one("[data-tail-badge]");
      badge.textContent = text;
      badge.className = `badge ${kind}`;
    }

    state(text) { const state = this.one("[data-tail-state]"); if (state.textContent !== text) state.textContent = text; }

    end() {
      clearInterval(this.clock);
      clearTimeout(this.retry);
      const socket = this.socket;
      this.socket = null;
      socket?.close();
    }
  }

  function pretty(text) { try { return JSON.stringify(JSON.parse(text), null, 2); } catch { return text; } }

  async function copy(text, button) {
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select and copy"; }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  function stop() { tail?.end(); tail = null; }

  document.addEventListener("htmx:load", () => {
    const box = document.querySelector("[data-tail]");
    if (tail && tail.box === box) return;
    stop();
    if (box) tail = new Tail(box);
  });
  document.addEventListener("visibilitychange", () => tail?.hidden(document.hidden));
  window.addEventListener("pagehide", stop);
})();
