// Runs the script of a page of `localctx simulate --html` on as much of a document as it needs, and prints what it shows.
// node page.mjs PAGE
import { readFileSync } from "node:fs";

const page = readFileSync(process.argv[2], "utf8");
const between = (start, end) => page.split(start)[1].split(end)[0];

class Element {
  constructor(tag) {
    Object.assign(this, { tag, children: [], parent: null, dataset: {}, attributes: {}, listeners: {}, className: "", value: "0", own: "" });
    this.style = { setProperty: (name, value) => { this.style[name] = value; } };
    const names = () => this.className.split(" ").filter(Boolean);
    this.classList = {
      contains: (name) => names().includes(name),
      add: (name) => { this.className = [...new Set([...names(), name])].join(" "); },
      remove: (name) => { this.className = names().filter((each) => each !== name).join(" "); },
      toggle: (name, on) => (on ? this.classList.add(name) : this.classList.remove(name)),
    };
  }
  get textContent() { return this.own + this.children.map((child) => child.textContent).join(""); }
  set textContent(text) { this.replaceChildren(); this.own = text; }
  append(...added) { added.forEach((child) => this.insertBefore(child, null)); }
  insertBefore(child, before) {
    child.remove();
    child.parent = this;
    this.children.splice(before === null ? this.children.length : this.children.indexOf(before), 0, child);
  }
  remove() {
    if (this.parent) this.parent.children = this.parent.children.filter((child) => child !== this);
    this.parent = null;
  }
  replaceChildren(...added) { [...this.children].forEach((child) => child.remove()); this.append(...added); }
  setAttribute(name, value) { this.attributes[name] = value; }
  removeAttribute(name) { delete this.attributes[name]; }
  addEventListener(kind, listener) { this.listeners[kind] = listener; }
  fire(kind) { this.listeners[kind]({ target: this }); }
  focus() {}
  closest() { return null; }
}

const elements = new Map([...page.matchAll(/ id="([a-z-]+)"/g)].map(([, id]) => [id, new Element(id)]));
const $ = (id) => elements.get(id);
$("data").textContent = between('<script type="application/json" id="data">', "</script>");
$("speed").value = "1";
const keys = {};
const timers = [];
globalThis.document = {
  getElementById: $, createElement: (tag) => new Element(tag), addEventListener: (kind, listener) => { keys[kind] = listener; },
};
globalThis.window = { matchMedia: () => ({ matches: process.argv[3] === "still" }) };
globalThis.setTimeout = (run) => timers.push(run);
globalThis.clearTimeout = (number) => { if (number) timers[number - 1] = null; };
(0, eval)(between("<script>", "</script>"));

const press = (key) => keys.keydown({ key, target: new Element("body"), preventDefault() {} });
const run = () => { while (timers.length) { const due = timers.splice(0).filter(Boolean); due.forEach((each) => each()); } };

const marked = (name) => $("desk").children.filter((paper) => paper.classList.contains(name)).map((paper) => paper.dataset.name);

function shown() {
  return {
    place: $("place").textContent, text: $("text").textContent, total: $("total").textContent,
    remarks: $("remarks").children.map((each) => each.textContent),
    desk: $("desk").children.map((paper) => [paper.dataset.name, paper.children[1].textContent]),
    file: $("file").children.map((each) => each.textContent),
    found: marked("found"),
  };
}

function walk() {
  $("reset").fire("click");
  const steps = [];
  for (let step = 0; step <= Number($("position").max); step++) {
    const taken = marked("taken");
    run();
    steps.push({ ...shown(), taken });
    press("ArrowRight");
  }
  return { gate: $("gate-said").textContent, memory: $("memory").checked, transcript: $("transcript").children.length, steps };
}

const first = walk();
const all = [];
for (let gate = 0; gate <= Number($("gate").max); gate++) {
  for (const memory of [true, false]) {
    $("gate").value = String(gate);
    $("gate").fire("input");
    $("memory").checked = memory;
    $("memory").fire("change");
    all.push(walk());
  }
}
$("policies").children[0].fire("click");
const unmoved = walk();
$("reset").fire("click");
$("play").fire("click");
const playing = $("play").textContent;
run();
const played = { playing, after: $("play").textContent, place: $("place").textContent };
press("ArrowLeft");
process.stdout.write(JSON.stringify({ first, all, unmoved, played, back: $("place").textContent }));
