// A conversation as elements: takes entries in order, each once; a rewind takes back what a dead attempt showed.
import { el } from "./page.js";
import { block, line } from "./plain.js";

/** Characters of one tool's output kept on the page. */
const OUTPUT_LIMIT = 200_000;
const TELLING = ["command", "path", "text", "summary"];

function summary(input) {
  if (typeof input?.host === "string") return place(input);
  for (const name of TELLING) if (typeof input?.[name] === "string") return input[name];
  return JSON.stringify(input, null, 1);
}

/** `GET example.test:8443/x`, as far as it was said. */
function place({ method, host, port, path, credential }) {
  return `${credential ? `credential ${credential} at ` : ""}${method ? `${method} ` : ""}${host}${!port || port === 443 ? "" : `:${port}`}${path ?? ""}`;
}

export class Conversation {
  constructor(root) {
    this.root = root;
    this.last = 0;
    this.streaming = null;
    this.calls = new Map();
  }

  /** Adds one entry; one that is known already is passed over. */
  add(entry) {
    if (entry.sequence <= this.last) return;
    this.last = entry.sequence;
    const kind = entry.what.kind;
    const one = this[kind.replaceAll("-", "_")];
    if (one) one.call(this, entry, entry.what);
  }

  place(entry, node) {
    node.classList.add("entry");
    node.dataset.sequence = entry.sequence;
    node.dataset.step = entry.step;
    node.dataset.attempt = entry.attempt;
    this.root.append(node);
    return node;
  }

  person(entry, what) {
    this.place(entry, el("div", { className: "person" },
      el("div", { className: "label", textContent: line(what.user || "task") }),
      el("div", { className: "prose", textContent: block(what.text) })));
  }

  /** The node that the model's text of this step and attempt goes into. */
  text(entry) {
    const same = this.streaming;
    if (same && same.step === entry.step && same.attempt === entry.attempt) return same.node;
    this.finish();
    const node = this.place(entry, el("div", { className: "said streaming" }, el("div", { className: "prose" })));
    this.streaming = { step: entry.step, attempt: entry.attempt, node };
    return node;
  }

  finish() {
    this.streaming?.node.classList.remove("streaming");
    this.streaming = null;
  }

  delta(entry, what) {
    this.text(entry).firstChild.append(block(what.text));
  }

  said(entry, what) {
    if (what.text || this.streaming) this.text(entry).firstChild.textContent = block(what.text);
    this.finish();
  }

  call(entry, what) {
    this.finish();
    const pre = el("pre", { tabIndex: 0 });
    const label = el("summary", { textContent: "Output" });
    const details = el("details", { open: true, hidden: true }, label, pre);
    const state = el("span", { className: "state pill live", textContent: "running" });
    const node = this.place(entry, el("div", { className: "call" },
      el("div", { className: "bar" },
        el("span", { className: "tool", textContent: line(what.tool) }),
        el("code", { className: "input", textContent: block(summary(what.input)) }),
        state),
      details));
    this.calls.set(what.call, { node, pre, label, details, state, size: 0, cut: false });
  }

  output(entry, what) {
    const call = this.calls.get(what.call);
    if (!call) return;
    call.details.hidden = false;
    const text = block(what.text);
    if (call.size + text.length <= OUTPUT_LIMIT) call.pre.append(text);
    else if (!call.cut) {
      call.cut = true;
      call.pre.append("\n… more than a page can show; `sallyport logs --json` has all of it");
    }
    call.size += text.length;
  }

  result(entry, what) {
    const call = this.calls.get(what.call);
    if (!call) return;
    if (!call.size && what.text) call.pre.textContent = block(what.text);
    const lines = call.pre.textContent.trimEnd().split("\n").length;
    call.details.hidden = !call.pre.textContent;
    call.label.textContent = `Output · ${lines} ${lines === 1 ? "line" : "lines"}`;
    call.details.open = !what.ok || lines <= 12;
    call.state.textContent = what.ok ? "ok" : "failed";
    call.state.className = `state pill ${what.ok ? "good" : "bad"}`;
    call.node.classList.toggle("failed", !what.ok);
  }

  refused(entry, { notice }) {
    this.finish();
    this.place(entry, el("div", { className: "event refused" },
      el("div", { className: "label", textContent: "Refused by the gateway" }),
      el("code", { className: "what", textContent: line(notice.what) }),
      el("p", {}, line(notice.reason), " ", el("span", { className: "faint small", textContent: `rule ${line(notice.rule)}` })),
      el("p", { textContent: `→ ${line(notice.remedy)}` })));
  }

  access(entry, what) {
    this.finish();
    this.place(entry, el("div", { className: `event ${what.granted ? "granted" : "withheld"}` },
      el("div", { className: "label", textContent: what.granted ? "Access granted" : "Access not granted" }),
      el("code", { className: "what", textContent: line(place(what.wanted)) }),
      el("p", { textContent: line(what.text) }),
      el("p", { className: "faint small", textContent: `The agent's reason: ${line(what.why)}` })));
  }

  /** Everything of this step with a lower attempt is void: it moves into a closed box. */
  rewind(entry, what) {
    this.finish();
    const dead = [...this.root.children].filter((node) =>
      Number(node.dataset.sequence) >= what.from && Number(node.dataset.step) === entry.step
      && Number(node.dataset.attempt) < entry.attempt && !node.classList.contains("void"));
    const inside = el("div", { className: "inside" });
    const box = this.place(entry, el("details", { className: "void" },
      el("summary", { textContent: `An attempt broke off (${line(what.why)}); what follows replaces it` }), inside));
    dead[0]?.before(box);
    inside.append(...dead);
    for (const [id, call] of this.calls) if (box.contains(call.node)) this.calls.delete(id);
  }

  note(entry, what) {
    this.finish();
    this.place(entry, el("div", { className: "note", textContent: line(what.text) }));
  }

  ended(entry, what) {
    this.finish();
    this.place(entry, el("div", { className: `end ${what.outcome}` },
      el("strong", { textContent: { done: "Done", failed: "Failed", stopped: "Stopped" }[what.outcome] ?? "Ended" }),
      el("div", { textContent: line(what.text) })));
  }
}
