'use strict';
// The page's data, and its samples in the form of `inspect --json`.
const data = JSON.parse(document.getElementById('data').textContent);
const hidden = new RegExp(data.hidden, 'gu');
const number = new Intl.NumberFormat('en').format;
const samples = data.samples.map((raw, place) => ({
  ...raw, place, row: raw.object.row, part: raw.object.part || 0, lints: raw.object.lints || [],
  refused: raw.object.refused || null,
  targetCount: raw.turns ? raw.turns.filter(turn => turn[2]).length
    : (raw.weights || []).reduce((sum, [weight, count]) => sum + (weight > 0 ? count : 0), 0),
}));

// What is searched, in lower case, made once a sample.
function wordsOf(sample) {
  if (sample.words === undefined) {
    const said = sample.refused ? sample.refused.reason + ' ' + sample.refused.detail
      : sample.turns ? sample.turns.map(turn => turn[1]).join('\n') : sample.text;
    sample.words = said.toLowerCase();
  }
  return sample.words;
}

function weightsOf(sample) {
  return sample.weights.flatMap(([weight, count]) => new Array(count).fill(weight));
}

// What is shown as one: a token, or the tokens that make a character only together.
function cellsOf(sample) {
  const weights = weightsOf(sample), joins = new Map(sample.joins.map(join => [join[0], join]));
  const cells = [];
  let turn = 0;
  for (let at = 0; at < sample.tokens.length;) {
    const [id, own, special] = data.vocab[sample.tokens[at]], join = joins.get(at), size = join ? join[1] : 1;
    const target = weights[at] > 0, first = target && !(at > 0 && weights[at - 1] > 0);
    if (first) turn += 1;
    const ids = join ? sample.tokens.slice(at, at + size).map(place => data.vocab[place][0]) : [id];
    cells.push({ text: join ? join[2] : own, at, ids, weight: weights[at], special: Boolean(special), target, first,
      last: target && !(weights[at + size] > 0), turn });
    at += size;
  }
  sample.turnCount = turn;
  return cells;
}

// The object that `inspect --json` prints for the sample.
function objectOf(sample) {
  if (!sample.tokens) return sample.object;
  const points = Array.from(sample.text);
  return { ...sample.object, input_ids: sample.tokens.map(place => data.vocab[place][0]), weights: weightsOf(sample),
    text: sample.text, target_text: sample.targets.map(target =>
      typeof target === 'string' ? target : points.slice(target[0], target[0] + target[1]).join('')) };
}

// JSON with every hidden character written as its number.
function safeJson(value) {
  const escape = unit => '\\u' + unit.charCodeAt(0).toString(16).padStart(4, '0');
  return JSON.stringify(value).replace(hidden, found => found[0] === ' ' ? found : found.split('').map(escape).join(''));
}

// What can't be seen as a sign that can; a line break keeps its effect, after its sign.
function signOf(found) {
  const code = found.codePointAt(0);
  if (found[0] === ' ') return '·'.repeat(found.length);
  if (found === '\n') return '↵\n';
  if (found === '\t') return '→\t';
  if (code < 0x20) return String.fromCodePoint(0x2400 + code);
  if (code === 0x7f) return '␡';
  return code === 0xa0 ? '⍽' : '⟨U+' + code.toString(16).toUpperCase().padStart(4, '0') + '⟩';
}

function signed(text) { return text.replace(hidden, signOf); }

// Puts `text` into `element`, each sign in an element of its own.
function putSigned(element, text) {
  let at = 0;
  for (const match of text.matchAll(hidden)) {
    if (match.index > at) element.append(text.slice(at, match.index));
    element.append(make('i', '', signOf(match[0])));
    at = match.index + match[0].length;
  }
  if (at < text.length) element.append(text.slice(at));
  return element;
}

function make(name, kind, text) {
  const element = document.createElement(name);
  if (kind) element.className = kind;
  if (text !== undefined) element.textContent = text;
  return element;
}

function button(kind, text) {
  const element = make('button', kind, text);
  element.type = 'button';
  return element;
}
