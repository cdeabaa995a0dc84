// What pages do by themselves beside htmx: counts in rows, copying, tabs, themes, keys.
"use strict";
(() => {
  const one = (selector, root = document) => root.querySelector(selector);
  const all = (selector, root = document) => [...(root.matches?.(selector) ? [root] : []), ...root.querySelectorAll(selector)];

  // --- htmx: the bar while it works, and what was swapped in
  let working = 0;
  const isPoll = (event) => event.detail.elt.matches("[hx-trigger*=every]");
  document.addEventListener("htmx:beforeRequest", (event) => {
    if (isPoll(event) && (document.hidden || all("details.message[open]", event.detail.elt).length)) event.preventDefault();
  });
  document.addEventListener("htmx:beforeSend", (event) => {
    if (isPoll(event)) return;
    working += 1;
    document.documentElement.classList.add("working");
    // Its end is told by the request: the element that asked may be gone by then, with all events that it gets.
    event.detail.xhr.addEventListener("loadend", () => {
      working -= 1;
      if (!working) document.documentElement.classList.remove("working");
    });
  });
  document.addEventListener("htmx:load", (event) => prepare(event.detail.elt));

  function prepare(root) {
    fillCounts(root);
    all("[data-typed]", root).forEach(watchTyped);
    all("[data-from-hash]", root).forEach((field) => {
      if (!field.value && location.hash.length > 1) {
        field.value = decodeURIComponent(location.hash.slice(1));
        history.replaceState(null, "", location.pathname + location.search);
      }
    });
    all("[data-json]", root).forEach(checkJson);
    reachScrolled(root);
  }

  // A table that is wider than its box is scrolled by keys, too.
  function reachScrolled(root) {
    for (const box of all(".table-box", root)) if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
  }
  addEventListener("resize", () => reachScrolled(document));

  function fillCounts(root) {
    for (const found of all("[data-counts]", root)) {
      const row = one(`tr[data-queue="${CSS.escape(found.dataset.counts)}"]`);
      if (row) found.dataset.values.split("|").forEach((text, place) => { row.cells[place + 1].textContent = text; });
    }
  }

  function watchTyped(field) {
    const button = one("[data-typed-button]", field.form);
    const look = () => { button.disabled = field.value.trim() !== field.dataset.typed; };
    field.addEventListener("input", look);
    look();
  }

  function checkJson(field) {
    const state = one("[data-json-state]", field.closest("label"));
    const look = () => {
      if (!field.value.trim()) { state.textContent = field.dataset.json || "Empty: none."; return; }
      try { JSON.parse(field.value); state.textContent = "Valid JSON."; } catch (error) { state.textContent = error.message; }
    };
    field.addEventListener("input", look);
    look();
  }

  // --- clicks
  const actions = {
    "data-copy": (button) => copy(one("code", button.parentElement).textContent, button),
    "data-copy-text": (button) => copy(button.dataset.copyText, button),
    "data-tab": (button) => {
      const box = button.closest("[data-tabs]");
      all("[data-tab]", box).forEach((tab) => tab.setAttribute("aria-selected", String(tab === button)));
      all("[data-panel]", box).forEach((panel) => { panel.hidden = panel.dataset.panel !== button.dataset.tab; });
    },
    "data-menu": (button) => {
      const open = one("#menu").classList.toggle("open");
      button.setAttribute("aria-expanded", String(open));
    },
    "data-theme-button": () => {
      const dark = matchMedia("(prefers-color-scheme: dark)").matches;
      const now = document.documentElement.dataset.theme || (dark ? "dark" : "light");
      const next = now === "dark" ? "light" : "dark";
      document.documentElement.dataset.theme = next;
      try { localStorage.setItem("penstock-theme", next); } catch { /* it holds for this page */ }
      document.dispatchEvent(new CustomEvent("penstock:theme"));
    },
    "data-jump": () => openJump(),
    "data-help": () => one("#keys").showModal(),
    "data-raw": (button) => {
      const box = button.closest("[data-body]");
      const raw = one("[data-raw-text]", box).hidden;
      one("[data-raw-text]", box).hidden = !raw;
      one("[data-pretty-text]", box).hidden = raw;
      button.textContent = raw ? "Pretty" : "Raw";
    },
    "data-add-attribute": (button) => {
      const rows = one("[data-attributes]", button.form);
      rows.append(one("template", rows).content.cloneNode(true));
    },
    "data-add-line": (button) => {
      const field = document.getElementById(button.dataset.addLine);
      field.value = [...field.value.split("\n").filter((line) => line.trim() && line.trim() !== button.dataset.line), button.dataset.line].join("\n");
      field.dispatchEvent(new Event("input", { bubbles: true }));
    },
    "data-go-line": (button) => {
      const field = one("[data-policy-text]");
      if (!field) return;
      const lines = field.value.split("\n"), line = Number(button.dataset.goLine) - 1;
      const start = lines.slice(0, line).reduce((sum, text) => sum + text.length + 1, 0);
      field.focus();
      field.setSelectionRange(start, start + (lines[line] ?? "").length);
      field.scrollTop = Math.max(0, line - 4) * parseFloat(getComputedStyle(field).lineHeight);
    },
    "data-remove-attribute": (button) => button.closest("[data-attribute]").remove(),
  };
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (button) for (const [name, act] of Object.entries(actions)) if (button.hasAttribute(name)) { act(button); }
    for (const open of all("details.more[open], details.switch[open]")) if (!open.contains(event.target)) open.open = false;
    if (event.target.nodeName === "DIALOG") event.target.close();
  });
  // A form that changes something is sent once: a second click before the answer makes no second key, message or credit.
  const SENT_MS = 5000;
  let sent = new WeakMap();
  const changes = (element) => element.nodeName === "FORM" && element.getAttribute("method")?.toLowerCase() === "post";
  const note = (form) => { if (changes(form)) sent.set(form, performance.now()); };
  document.addEventListener("submit", (event) => {
    const isSent = performance.now() - (sent.get(event.target) ?? -Infinity) < SENT_MS;
    const question = event.target.dataset.confirm || event.submitter?.dataset.ask;
    if (isSent || (question && !confirm(question))) { event.preventDefault(); event.stopImmediatePropagation(); }
  }, true);
  addEventListener("submit", (event) => { if (!event.defaultPrevented) note(event.target); });
  document.addEventListener("htmx:beforeSend", (event) => note(event.detail.elt));
  document.addEventListener("htmx:afterRequest", (event) => sent.delete(event.detail.elt));
  addEventListener("pageshow", () => { sent = new WeakMap(); });
  document.addEventListener("input", (event) => {
    if (event.target.matches("[data-seconds]")) one("output", event.target.parentElement).textContent = span(event.target.value);
  });

  async function copy(text, button) {
    const before = button.textContent;
    try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select and copy"; }
    setTimeout(() => { button.textContent = before; }, 1500);
  }

  function span(text) {
    let rest = Number(text);
    if (!text || !Number.isFinite(rest)) return "";
    const parts = [];
    for (const [size, unit] of [[86400, "d"], [3600, "h"], [60, "min"]]) {
      if (rest >= size) { parts.push(`${Math.floor(rest / size)} ${unit}`); rest %= size; }
    }
    if (rest || !parts.length) parts.push(`${rest} s`);
    return parts.slice(0, 2).join(" ");
  }

  // --- keys
  function openJump() {
    const dialog = one("#jump");
    if (!dialog || dialog.open) return;
    dialog.showModal();
    const field = one("input", dialog);
    field.value = "";
    showPages("");
    field.focus();
  }

  function showPages(text) {
    const list = one("#jumps");
    list.replaceChildren(...all("nav .nav").filter((link) => link.textContent.toLowerCase().includes(text)).map((link) => {
      const copy = document.createElement("a");
      copy.href = link.href;
      copy.textContent = link.textContent;
      return copy;
    }));
    htmx.process(list);
  }

  let before = "";
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "k") { event.preventDefault(); openJump(); return; }
    const dialog = one("#jump");
    if (dialog?.open) { moveInJump(event, dialog); return; }
    if (event.target.closest("input, textarea, select, dialog") || event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/") { const field = one("[data-search]"); if (field) { event.preventDefault(); field.focus(); field.select(); } }
    if (event.key === "?") one("#keys")?.showModal();
    const account = document.body.dataset.account;
    if (before === "g" && account && event.key === "q") location.href = `/console/a/${account}/queues`;
    if (before === "g" && account && event.key === "o") location.href = `/console/a/${account}/`;
    before = event.key;
  });

  function moveInJump(event, dialog) {
    const links = all("#jumps a", dialog);
    const place = links.indexOf(document.activeElement);
    if (event.key === "Enter" && place < 0) { event.preventDefault(); links[0]?.click(); }
    if (event.key === "ArrowDown") { event.preventDefault(); links[Math.min(place + 1, links.length - 1)]?.focus(); }
    if (event.key === "ArrowUp") { event.preventDefault(); if (place <= 0) one("input", dialog).focus(); else links[place - 1].focus(); }
  }
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.detail.target.id === "jumps") one("#jumps a")?.classList.add("first");
  });
})();
