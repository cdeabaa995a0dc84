// Passkeys: forms with [data-passkey] fetch options, ask the browser, and go off with what it signed.
"use strict";
(() => {
  const bytes = (text) => Uint8Array.from(atob(text.replace(/-/g, "+").replace(/_/g, "/")), (char) => char.charCodeAt(0));
  const text = (buffer) => btoa(String.fromCharCode(...new Uint8Array(buffer))).replace(/\+/g, "-").replace(/\//g, "_").replace(/=+$/, "");
  const known = (list) => (list ?? []).map((one) => ({ ...one, id: bytes(one.id) }));

  // Browsers give passkeys to the pages of one origin, and to no other name of the same server.
  document.addEventListener("htmx:load", (event) => {
    for (const form of event.detail.elt.querySelectorAll("form[data-passkey]")) {
      const possible = Boolean(window.PublicKeyCredential && navigator.credentials);
      const isHere = location.origin === form.dataset.origin;
      form.hidden = !(possible && isHere);
      const elsewhere = form.parentElement.querySelector("[data-passkey-elsewhere]");
      if (elsewhere) elsewhere.hidden = isHere;
    }
  });

  document.addEventListener("submit", async (event) => {
    const form = event.target;
    if (!form.matches("form[data-passkey]")) return;
    event.preventDefault();
    const button = form.querySelector("button");
    if (button.disabled) return;
    button.disabled = true;
    say(form, "Waiting for your device …");
    try {
      const answer = await fetch(form.dataset.options, { method: "POST", body: new FormData(form) });
      const content = await answer.json();
      if (content.go) { location.assign(content.go); return; }
      if (!content.options) { say(form, content.refused); return; }
      form.elements.credential.value = JSON.stringify(await (form.dataset.passkey === "create" ? create : get)(content.options));
      form.submit();
    } catch (error) {
      say(form, reason(error));
    } finally {
      button.disabled = false;
    }
  });

  async function create(options) {
    const user = { ...options.user, id: bytes(options.user.id) };
    const publicKey = { ...options, user, challenge: bytes(options.challenge), excludeCredentials: known(options.excludeCredentials) };
    const made = await navigator.credentials.create({ publicKey });
    return described(made, { attestationObject: text(made.response.attestationObject) });
  }

  async function get(options) {
    const publicKey = { ...options, challenge: bytes(options.challenge), allowCredentials: known(options.allowCredentials) };
    const found = await navigator.credentials.get({ publicKey });
    const { authenticatorData, signature, userHandle } = found.response;
    const signed = { authenticatorData: text(authenticatorData), signature: text(signature) };
    return described(found, userHandle ? { ...signed, userHandle: text(userHandle) } : signed);
  }

  function described(credential, response) {
    const clientDataJSON = text(credential.response.clientDataJSON);
    return { id: credential.id, rawId: text(credential.rawId), type: credential.type, response: { clientDataJSON, ...response } };
  }

  function reason(error) {
    if (error.name === "InvalidStateError") return "This device holds a passkey of yours already.";
    if (error.name === "NotAllowedError") return "Nothing was signed: it was cancelled, took too long, or the device has no passkey for this.";
    if (error.name === "NotSupportedError" || error.name === "ConstraintError") return "This device cannot verify you, or cannot create passkeys.";
    return "It did not work. Load the page again, then try once more.";
  }

  function say(form, words) {
    form.querySelector("[data-passkey-state]").textContent = words;
  }
})();
