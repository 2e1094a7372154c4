// What pages gain from a script: they follow what happens, times pass, keys work, questions come in a dialog.
// Every page does its work without it. Nothing is made from text: nodes are parsed by the browser, and moved.
(() => {
  "use strict";

  const page = document.documentElement;
  const kept = { get: (key) => { try { return localStorage.getItem(key); } catch { return null; } }, set: (key, value) => { try { localStorage.setItem(key, value); } catch { /* private */ } } };

  // At once, before the page is drawn, so that it does not flash.
  const theme = kept.get("pgqrs-theme");
  if (theme === "dark" || theme === "light") page.dataset.theme = theme;

  const isDark = () => page.dataset.theme ? page.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const switchTheme = () => { page.dataset.theme = isDark() ? "light" : "dark"; kept.set("pgqrs-theme", page.dataset.theme); };

  // -- times ---------------------------------------------------------------------------------------------

  const units = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]];
  const brief = (seconds) => { for (const [size, unit] of units) if (seconds >= size) return `${Math.floor(seconds / size)} ${unit}`; return "0 s"; };
  // The database's clock, as far as this browser knows: what the page said when it came, and the time since.
  let clock = { told: 0, at: 0 };
  const setClock = (body) => { clock = { told: Date.parse(body.dataset.now), at: performance.now() }; };
  const now = () => clock.told + performance.now() - clock.at;
  const tellTimes = () => {
    for (const each of document.querySelectorAll("time[datetime]")) {
      const seconds = (now() - Date.parse(each.dateTime)) / 1000;
      const text = Math.abs(seconds) < 1 ? "now" : seconds > 0 ? `${brief(seconds)} ago` : `in ${brief(-seconds)}`;
      if (each.textContent !== text) each.textContent = text;
    }
  };

  // -- following what happens ------------------------------------------------------------------------------

  // Makes `old` like `fresh`, node by node, so that focus, selection, what was typed and what was opened stay.
  const sameKind = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && (a.id || "") === (b.id || "");
  const renew = (old, fresh) => {
    if (old.nodeType !== Node.ELEMENT_NODE) {
      if (old.nodeValue !== fresh.nodeValue) old.nodeValue = fresh.nodeValue;
      return;
    }
    const isField = old.matches("input, select, textarea");
    for (const name of old.getAttributeNames()) {
      // What the reader or the script has put there.
      if (name === "open" || name === "data-at" || name === "hidden") continue;
      if (!fresh.hasAttribute(name)) old.removeAttribute(name);
    }
    for (const name of fresh.getAttributeNames()) {
      if (name === "open" || name === "hidden" || (isField && name === "value")) continue;
      if (old.getAttribute(name) !== fresh.getAttribute(name)) old.setAttribute(name, fresh.getAttribute(name));
    }
    // A form that somebody may be filling in stays as it is.
    if (old.matches("textarea, select") || old === document.activeElement && isField) return;
    if (old.nodeName === "TIME" && old.dateTime === fresh.dateTime) return;
    renewChildren(old, fresh);
  };
  const renewChildren = (old, fresh) => {
    const byId = new Map([...old.children].filter((each) => each.id).map((each) => [each.id, each]));
    let at = old.firstChild;
    for (const wanted of [...fresh.childNodes]) {
      const known = wanted.id ? byId.get(wanted.id) : null;
      if (known && known.nodeName === wanted.nodeName) {
        if (known !== at) old.insertBefore(known, at); else at = at.nextSibling;
        renew(known, wanted);
      } else if (at && sameKind(at, wanted)) {
        const here = at; at = at.nextSibling; renew(here, wanted);
      } else {
        old.insertBefore(document.importNode(wanted, true), at);
      }
    }
    while (at) { const next = at.nextSibling; at.remove(); at = next; }
  };

  let fetching = null;
  const refresh = async (address = location.href) => {
    if (fetching) fetching.abort();
    fetching = new AbortController();
    try {
      const answer = await fetch(address, { headers: { accept: "text/html" }, signal: fetching.signal, credentials: "same-origin" });
      if (!answer.ok || answer.redirected) return false;
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const old of document.querySelectorAll("[data-live]")) {
        const wanted = fresh.getElementById(old.id);
        if (wanted) renew(old, wanted);
      }
      setClock(fresh.body);
      tellTimes();
      prepare();
      page.dataset.fresh = String(Number(page.dataset.fresh || 0) + 1);
      return true;
    } catch { return false; } finally { fetching = null; }
  };

  // A hint that concerns this page makes it fetch itself again: soon, and not more often than this.
  const PAUSE = 400, SLOW = 5000;
  let due = null, last = 0;
  const soon = () => {
    if (due || document.hidden) { missed = document.hidden || missed; return; }
    due = setTimeout(() => { due = null; last = performance.now(); refresh(); }, Math.max(0, last + PAUSE - performance.now()));
  };
  let missed = false;
  const concerns = (hint) => {
    const watched = document.body.dataset.watch.split(" ");
    return watched.some((each) => { const [kind, id] = each.split(":"); return kind === hint.kind && (!id || hint.id == null || String(hint.id) === id) || hint.kind === "runs" && kind === "run" || hint.kind === "all"; });
  };
  let stream = null, polling = null;
  const poll = () => { polling = polling || setInterval(() => { if (!document.hidden) refresh(); }, SLOW); };
  const follow = () => {
    if (!document.body.dataset.watch || !document.querySelector("[data-live]")) return;
    // Now and then even so: leases run out and times come without anything being written.
    setInterval(() => { if (!document.hidden) soon(); }, 30000);
    try { stream = new EventSource(`${document.body.dataset.root}/stream`); } catch { poll(); return; }
    stream.onopen = () => { clearInterval(polling); polling = null; page.dataset.stream = "open"; };
    stream.onmessage = (event) => { try { if (concerns(JSON.parse(event.data))) soon(); } catch { /* not ours */ } };
    // The browser tries again by itself, unless the server said no for good.
    stream.onerror = () => { page.dataset.stream = "closed"; poll(); };
    document.addEventListener("visibilitychange", () => { if (!document.hidden && missed) { missed = false; soon(); } });
    addEventListener("pagehide", () => stream.close());
  };

  // -- questions in a dialog -------------------------------------------------------------------------------

  let dialog = null;
  const open = (content) => {
    if (dialog) dialog.remove();
    dialog = document.createElement("dialog");
    dialog.append(content);
    document.body.append(dialog);
    const title = dialog.querySelector("h1, h2");
    if (title) { title.id = "dialog-title"; dialog.setAttribute("aria-labelledby", "dialog-title"); }
    dialog.addEventListener("click", (event) => {
      if (event.target === dialog || event.target.closest("[data-dismiss]")) { event.preventDefault(); dialog.close(); }
    });
    dialog.addEventListener("close", () => { dialog.remove(); dialog = null; });
    dialog.showModal();
    const first = dialog.querySelector("input:not([type=hidden]), textarea, select, button");
    if (first) first.focus();
  };
  const ask = async (address) => {
    try {
      const answer = await fetch(address, { headers: { accept: "text/html" }, credentials: "same-origin" });
      const form = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-dialog-form]");
      if (!answer.ok || !form) throw new Error("no form");
      open(document.importNode(form, true));
    } catch { location.assign(address); }
  };

  // -- keys --------------------------------------------------------------------------------------------------

  const places = { o: "/", r: "/runs", i: "/inbox", f: "/failures", w: "/workflows", q: "/queues", k: "/workers", s: "/schedules", b: "/outbox", y: "/system" };
  const help = () => {
    const keys = [["/", "find runs"], ["j k", "next, previous row"], ["Enter", "open it"], ["x", "tick it"], ["g o", "overview"], ["g r", "runs"], ["g i", "inbox"], ["g f", "failures"], ["g w", "workflows"], ["g q", "queues"], ["g k", "workers"], ["g s", "schedules"], ["g b", "outbox"], ["g y", "system"], ["t", "light or dark"], ["?", "this"]];
    const box = document.createElement("div"), title = document.createElement("h2"), list = document.createElement("div"), button = document.createElement("button");
    title.textContent = "Keys"; list.className = "keys"; button.textContent = "Close"; button.type = "button"; button.dataset.dismiss = "";
    for (const [key, word] of keys) {
      const left = document.createElement("span"), right = document.createElement("span");
      for (const each of key.split(" ")) { const k = document.createElement("kbd"); k.textContent = each; left.append(k, " "); }
      right.textContent = word; list.append(left, right);
    }
    box.append(title, list, button);
    open(box);
  };
  const rows = () => [...document.querySelectorAll("main tr:has([data-open]), main .card:has([data-open])")];
  const move = (by) => {
    const all = rows();
    if (!all.length) return;
    const at = all.findIndex((row) => row.hasAttribute("data-at"));
    const next = all[Math.min(Math.max(at + by, 0), all.length - 1)];
    if (at >= 0) all[at].removeAttribute("data-at");
    next.setAttribute("data-at", "");
    next.querySelector("[data-open]").focus({ preventScroll: true });
    next.scrollIntoView({ block: "nearest" });
  };
  let going = 0;
  const onKey = (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input:not([type=checkbox]), textarea, select, dialog")) return;
    const key = event.key;
    if (performance.now() - going < 1500 && places[key]) { location.assign(document.body.dataset.root + places[key]); return; }
    going = 0;
    const here = document.querySelector("[data-at]");
    if (key === "g") going = performance.now();
    else if (key === "/") { const box = document.getElementById("find"); if (box) { event.preventDefault(); box.focus(); box.select(); } }
    else if (key === "j") move(1);
    else if (key === "k") move(-1);
    else if (key === "x" && here) { const box = here.querySelector("input[type=checkbox]"); if (box) box.checked = !box.checked; }
    else if (key === "t") switchTheme();
    else if (key === "?") help();
  };

  // -- what is clicked ---------------------------------------------------------------------------------------

  const soft = async (address) => {
    if (!await refresh(address)) { location.assign(address); return; }
    history.pushState(null, "", address);
    const target = location.hash && document.getElementById(location.hash.slice(1));
    if (target) target.scrollIntoView({ block: "nearest" });
  };
  const onClick = async (event) => {
    const plain = event.button === 0 && !event.ctrlKey && !event.metaKey && !event.shiftKey && !event.altKey;
    const link = event.target.closest("a[data-dialog], a[data-soft]");
    if (link && plain) { event.preventDefault(); await (link.hasAttribute("data-dialog") ? ask(link.href) : soft(link.href)); return; }
    const copy = event.target.closest("[data-copy]");
    if (copy) {
      try { await navigator.clipboard.writeText(copy.dataset.copy); const word = copy.textContent; copy.textContent = "copied"; setTimeout(() => { copy.textContent = word; }, 1500); } catch { /* not allowed */ }
      return;
    }
    if (event.target.closest("[data-theme-toggle]")) switchTheme();
    if (event.target.closest("[data-help-toggle]")) help();
    for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(event.target)) menu.open = false;
  };
  const onSubmit = (event) => {
    const form = event.target;
    if (form.matches(".bulk") && event.submitter) {
      event.preventDefault();
      ask(`${form.action}?${new URLSearchParams(new FormData(form, event.submitter))}`);
    } else if (form.method === "post") {
      // Once is enough; the browser may bring the page back as it was.
      if (form.dataset.sent) { event.preventDefault(); return; }
      form.dataset.sent = "yes";
      setTimeout(() => { delete form.dataset.sent; }, 3000);
    }
  };

  const prepare = () => { for (const each of document.querySelectorAll("[data-copy][hidden], [data-theme-toggle][hidden], [data-help-toggle][hidden]")) each.hidden = false; };

  addEventListener("DOMContentLoaded", () => {
    setClock(document.body);
    prepare();
    setInterval(() => { if (!document.hidden) tellTimes(); }, 1000);
    document.addEventListener("keydown", onKey);
    document.addEventListener("click", onClick);
    document.addEventListener("submit", onSubmit);
    addEventListener("popstate", () => refresh());
    // What was done is told once: loading the page again must not tell it again.
    const here = new URL(location.href);
    if (here.searchParams.has("done")) { here.searchParams.delete("done"); history.replaceState(null, "", here); }
    follow();
    page.dataset.ready = "yes";
  });
})();
