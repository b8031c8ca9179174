// One sample as elements, and the box that tells of one token.
const FIRST_TOKENS = 3000;  // of a longer sample; the rest is a click away

function counted(count, name) { return number(count) + ' ' + name + (count === 1 ? '' : 's'); }

function headOf(sample) {
  const head = make('h3'), parts = ['row ' + number(sample.row)];
  if (sample.part) parts.push('part ' + sample.part);
  if (sample.object.role) parts.push(sample.object.role);
  head.append(make('strong', '', parts.join(', ')));
  const source = data.sources.length > 1 ? signed(data.sources[sample.source]) + ' · ' : '';
  const share = Math.round(100 * sample.targetCount / Math.max(1, sample.length));
  const facts = sample.refused ? 'left out' : sample.turns
    ? counted(sample.length, 'character') + ', ' + sample.targetCount + ' of ' + sample.turns.length + ' turns carry loss'
    : counted(sample.length, 'token') + ', ' + counted(sample.targetCount, 'target') + ' (' + share + ' %)';
  head.append(make('span', 'soft', source + facts));
  return head;
}

function fill(item, sample, words) {
  const parts = [headOf(sample)];
  if (sample.refused) {
    const refused = make('p', 'warn');
    refused.append(chip('refused', sample.refused.reason), ' ');
    parts.push(putSigned(refused, sample.refused.detail));
  } else if (sample.turns) parts.push(...turnsOf(sample, words));
  else parts.push(...tokensOf(sample, words));
  if (sample.lints.length) {
    const lints = make('p', 'lints', 'worth a look: ');
    lints.append(...sample.lints.map(name => chip('lint', name)));
    parts.push(lints);
  }
  item.replaceChildren(...parts, jsonOf(sample));
}

function chip(key, name) {
  const element = button('chip', name);
  element.dataset.filter = new URLSearchParams([[key, name]]).toString();
  element.title = data.about[name] || '';
  return element;
}

function jsonOf(sample) {
  const details = make('details', 'json'), text = make('pre');
  details.append(make('summary', '', 'JSON'), text);
  details.addEventListener('toggle', () => { text.textContent = details.open ? safeJson(objectOf(sample)) : ''; });
  return details;
}

function turnsOf(sample, words) {
  return sample.turns.map(([role, text, trained]) => {
    const turn = make('div', 'turn'), said = make('p', 'tokens');
    turn.append(make('p', 'role', signed(role) + (trained ? ' · target' : '')));
    const body = make('b', trained ? 't b e' : '');
    let at = 0;
    for (const [start, end] of found(text, words)) {
      putSigned(body, text.slice(at, start));
      body.append(putSigned(make('mark'), text.slice(start, end)));
      at = end;
    }
    putSigned(body, text.slice(at));
    said.append(body);
    turn.append(said);
    return turn;
  });
}

function tokensOf(sample, words) {
  const bar = make('div', 'bar'), part = make('span');
  part.style.width = 100 * sample.targetCount / Math.max(1, sample.length) + '%';
  bar.append(part);
  const box = make('div', 'tokens'), cells = cellsOf(sample), marked = markedCells(cells, words);
  box.dataset.roving = '';
  box.setAttribute('role', 'group');
  box.setAttribute('aria-label', 'tokens of row ' + sample.row);
  const show = (from, to) => box.append(...cells.slice(from, to).map((cell, at) =>
    tokenOf(cell, sample, marked.has(from + at), from + at === 0)));
  const firstMatch = marked.size ? Math.min(...marked) : 0, some = Math.max(FIRST_TOKENS, firstMatch + 100);
  show(0, some);
  if (cells.length <= some) return [bar, box];
  const rest = button('rest', 'Show the other ' + number(cells.length - some) + ' tokens');
  rest.addEventListener('click', () => { show(some); rest.remove(); box.children[some].focus(); });
  return [bar, box, rest];
}

function tokenOf(cell, sample, marked, isStop) {
  const kind = (cell.target ? 't' : '') + (cell.first ? ' b' : '') + (cell.last ? ' e' : '')
    + (cell.target && cell.weight !== 1 ? ' w' : '') + (cell.special ? ' s' : '') + (marked ? ' m' : '');
  const element = putSigned(make('b', kind.trim()), cell.text);
  element.tabIndex = isStop ? 0 : -1;
  element.tell = () => [['text', '“' + signed(cell.text).replace('\n', '') + '”'],
    [cell.ids.length > 1 ? 'ids' : 'id', cell.ids.join(', ')], ['position', number(cell.at)],
    ['weight', cell.weight + (cell.target ? ', a target' : ', context')], [sample.object.turns ? 'turn' : 'target run', turnOf(cell, sample)]];
  return element;
}

// The message that a token comes from; where messages are not known, the run of targets that it stands in or before.
function turnOf(cell, sample) {
  if (sample.object.turns) {
    const turn = sample.object.turns.find(([start, size]) => start <= cell.at && cell.at < start + size);
    return turn ? turn[2] + ' · ' + turn[3] : 'none: the template’s own';
  }
  const all = sample.turnCount;
  if (!all) return 'none: no target';
  if (cell.target) return cell.turn + ' of ' + all;
  return cell.turn < all ? 'before ' + (cell.turn + 1) + ' of ' + all : 'after the last';
}

// Places [start, end) of `words` in `text`, whatever the case.
function found(text, words) {
  const lower = text.toLowerCase(), places = [];
  if (!words || lower.length !== text.length) return places;
  for (let at = lower.indexOf(words); at >= 0; at = lower.indexOf(words, at + words.length))
    places.push([at, at + words.length]);
  return places;
}

function markedCells(cells, words) {
  const marked = new Set(), places = found(cells.map(cell => cell.text).join(''), words);
  let start = 0, next = 0;
  cells.forEach((cell, at) => {
    const end = start + cell.text.length;
    while (next < places.length && places[next][1] <= start) next += 1;
    if (next < places.length && places[next][0] < end) marked.add(at);
    start = end;
  });
  return marked;
}

const tellBox = document.getElementById('tip');
tellBox.setAttribute('role', 'status');
let told = null;
function tell(token) {
  if (told === token) return;
  told = token;
  tellBox.style.display = token ? 'grid' : 'none';
  if (!token) return;
  const lines = token.tell();
  tellBox.replaceChildren(...lines.flatMap(([name, value]) => [make('span', 'name', name), make('span', '', value)]));
  token.setAttribute('aria-label', lines.map(([name, value]) => name + ' ' + value).join(', '));
  token.setAttribute('role', 'note');
  placeTell(token);
}

function placeTell(token) {
  tellBox.style.left = tellBox.style.top = '';
  if (matchMedia('(max-width: 560px)').matches) return;  // there it stands at the bottom of the window
  const rects = token.getClientRects(), rect = rects[rects.length - 1], box = tellBox.getBoundingClientRect();
  const below = rect.bottom + 8 + box.height < innerHeight;
  tellBox.style.left = Math.max(6, Math.min(rect.left, document.documentElement.clientWidth - box.width - 6)) + 'px';
  tellBox.style.top = (below ? rect.bottom + 8 : rects[0].top - box.height - 8) + 'px';
}
