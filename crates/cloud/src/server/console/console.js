// Follows the changes of a page, shows times in the zone of the browser, and asks security keys. Each page works
// without it, except for these keys.
//
// An element with `data-live` and an id is replaced by the one of the same page as the server renders it now, when the
// stream that an element names in `data-stream` reports a change, and from time to time. It never replaces what a
// person is using.
"use strict";

(() => {
  // Changes within this time are read together, and two readings are this far apart.
  const DEBOUNCE = 300;
  const MIN_INTERVAL = 2_000;
  const MIN_RETRY = 1_000;
  const MAX_RETRY = 60_000;
  // A page is read again after this time, for what no stream reports: the reports of clusters.
  const POLL = 30_000;
  // It is read sooner, so many times, while clusters follow a change (`data-soon`).
  const POLL_SOON = 5_000;
  // A connection that went silent ends no reading by itself.
  const READ_TIMEOUT = 30_000;
  let soon = 24;

  const clock = new Intl.DateTimeFormat(undefined, {
    year: "numeric", month: "short", day: "2-digit", hour: "2-digit", minute: "2-digit", timeZoneName: "short",
  });

  // The same words as those of the server.
  function words(seconds) {
    const size = Math.abs(seconds);
    if (size < 60) return "just now";
    const [unit, name] = size < 3_600 ? [60, "min"] : size < 86_400 ? [3_600, "h"] : [86_400, "d"];
    const count = `${Math.floor(size / unit)} ${name}`;
    return seconds < 0 ? `in ${count}` : `${count} ago`;
  }

  function showTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = Date.parse(time.dateTime);
      if (Number.isNaN(at)) continue;
      time.textContent = time.classList.contains("ago") ? words((Date.now() - at) / 1_000) : clock.format(at);
    }
  }

  // What the server rendered last of each live element, before its times were rewritten.
  const rendered = new Map();
  const lives = () => document.querySelectorAll("[data-live][id]");

  function isFilled(field) {
    if (field.matches("select")) return [...field.options].some((option) => option.selected !== option.defaultSelected);
    return field.value !== field.defaultValue || field.checked !== field.defaultChecked;
  }

  // Returns true if a replacement would take something from a person.
  function isUsed(element) {
    const active = document.activeElement;
    const selection = document.getSelection();
    return element.contains(active)
      || element.querySelector("details[open]") !== null
      || [...element.querySelectorAll("input, textarea, select")].some(isFilled)
      || (selection !== null && !selection.isCollapsed && element.contains(selection.anchorNode));
  }

  function isBusy() {
    const active = document.activeElement;
    const types = active !== null && active.matches("input:not([type=checkbox], [type=radio]), select, textarea");
    return types || document.querySelector("dialog[open]") !== null;
  }

  let isWanted = false;
  let isReading = false;
  let timer = null;
  let lastRead = -MIN_INTERVAL;
  // The time of the page, or of the last reading that succeeded.
  let readAt = Date.now();

  function schedule() {
    isWanted = true;
    // A timer that each change restarted would never end while changes go on.
    timer ??= setTimeout(refresh, Math.max(DEBOUNCE, lastRead + MIN_INTERVAL - performance.now()));
  }

  async function refresh() {
    timer = null;
    if (isReading || document.hidden || isBusy()) return;
    isReading = true;
    isWanted = false;
    let isStale = true;
    try {
      const response = await fetch(location.href, { cache: "no-store", signal: AbortSignal.timeout(READ_TIMEOUT) });
      // The session has ended, or what the page shows has gone.
      if (response.redirected || response.status === 403 || response.status === 404) {
        location.reload();
        return;
      }
      if (response.ok) {
        replace(new DOMParser().parseFromString(await response.text(), "text/html"));
        readAt = Date.now();
      }
      isStale = !response.ok;
    } catch {
      // The next change or the next poll tries again.
    } finally {
      document.getElementById("stale").textContent = isStale ? `Not updated since ${clock.format(readAt)}.` : "";
      isReading = false;
      lastRead = performance.now();
      if (isWanted) schedule();
    }
  }

  function replace(fresh) {
    for (const element of lives()) {
      const other = fresh.getElementById(element.id);
      if (other === null || other.innerHTML === rendered.get(element.id)) continue;
      if (isBusy() || isUsed(element)) {
        // Read again when the person has left it.
        isLeft = false;
        continue;
      }
      rendered.set(element.id, other.innerHTML);
      const scrolled = element.querySelector(".table")?.scrollLeft ?? 0;
      element.replaceChildren(...other.childNodes);
      const table = element.querySelector(".table");
      if (table !== null) table.scrollLeft = scrolled;
      showTimes(element);
    }
  }

  // False while a change waits until a person has left a field.
  let isLeft = true;

  document.addEventListener("focusout", () => {
    if (isWanted || !isLeft) {
      isLeft = true;
      schedule();
    }
  });

  // Of a stream with `data-kinds`, only changes of these are read.
  const { stream: url, kinds } = document.querySelector("[data-stream]")?.dataset ?? {};
  const isShown = (change) => kinds === undefined || change.kinds.some((kind) => kinds.split(" ").includes(kind));
  let source = null;
  let failures = 0;
  let retry;

  function connect() {
    if (url === undefined || source !== null || document.hidden) return;
    source = new EventSource(url);
    source.addEventListener("hello", () => {
      // Changes between the page and the stream, or while it was away, are in the next reading.
      failures = 0;
      schedule();
    });
    source.addEventListener("reset", schedule);
    source.addEventListener("change", (event) => {
      if (isShown(JSON.parse(event.data))) schedule();
    });
    source.addEventListener("error", () => {
      disconnect();
      const delay = Math.min(MAX_RETRY, MIN_RETRY * 2 ** failures);
      failures += 1;
      // An ended session ends the stream too: the next reading finds out.
      schedule();
      retry = setTimeout(connect, delay * (0.5 + Math.random() / 2));
    });
  }

  function disconnect() {
    clearTimeout(retry);
    source?.close();
    source = null;
  }

  function poll() {
    const isSoon = soon > 0 && document.querySelector("[data-soon]") !== null;
    if (isSoon) soon -= 1;
    const time = isSoon ? POLL_SOON : POLL;
    setTimeout(() => {
      if (!document.hidden) schedule();
      poll();
    }, time * (0.75 + Math.random() / 2));
  }

  // The answer of a security key to the options of a form, as text.
  async function answered({ ceremony, options }) {
    const json = JSON.parse(options);
    const credential = ceremony === "create"
      ? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(json) })
      : await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(json) });
    return JSON.stringify(credential);
  }

  for (const form of document.querySelectorAll("form[data-ceremony]")) {
    const isKnown = window.PublicKeyCredential?.parseCreationOptionsFromJSON !== undefined;
    form.hidden = false;
    const status = form.querySelector("[role=status]");
    if (!isKnown) status.textContent = "This browser is too old for security keys.";
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      if (!isKnown) return;
      try {
        form.elements.namedItem("credential").value = await answered(form.dataset);
        form.submit();
      } catch (error) {
        status.textContent = `The security key was not used (${error.name}). Try again.`;
      }
    });
  }

  for (const element of lives()) rendered.set(element.id, element.innerHTML);
  showTimes(document);
  setInterval(() => showTimes(document), 60_000);
  if (rendered.size > 0) {
    connect();
    poll();
    document.addEventListener("visibilitychange", () => {
      disconnect();
      if (!document.hidden) {
        connect();
        schedule();
      }
    });
    addEventListener("pagehide", disconnect);
    addEventListener("pageshow", (event) => {
      if (event.persisted) connect();
    });
  }
})();
