/** The spans of time that graphs show up to now, as world.samples is asked for them. */
export const spans = { hour: { minutes: 60, points: 60 }, day: { minutes: 1440, points: 96 } };

const minute = 60_000;
/** How far world.samples goes back, and how many samples it answers with at most. */
const most = { minutes: 1440, points: 240 };

const time = (text) => {
  const at = Date.parse(text ?? "");
  return Number.isNaN(at) ? undefined : at;
};

/** Returns the range of time that an address names, {from, to} in milliseconds; what it does not name is undefined. */
export function rangeOf(query) {
  const [from, to] = [time(query.get("from")), time(query.get("to"))];
  return from !== undefined && to !== undefined && to <= from ? { from, to: undefined } : { from, to };
}

const written = (at) => (at === undefined ? "" : new Date(at).toISOString().replace(/(:00)?\.000Z$/, "Z"));

/** Returns the members of an address for a range; without a range they are empty. */
export const inAddress = ({ from, to } = {}) => ({ from: written(from), to: written(to) });

/** Returns the members of a request that lists the runs of a range. */
export const inRequest = ({ from, to }) => ({
  from: from === undefined ? undefined : new Date(from).toISOString(), to: to === undefined ? undefined : new Date(to).toISOString(),
});

/** Returns how world.samples is asked for a range, or for a span up to now without one. */
export function samplesFor({ from }, span, now) {
  if (from === undefined) return spans[span] ?? spans.hour;
  const minutes = Math.min(most.minutes, Math.max(1, Math.ceil((now - from) / minute)));
  return { minutes, points: Math.min(most.points, minutes) };
}

/** Returns the samples that overlap a range. */
export function within(samples, stepMs, { from = -Infinity, to = Infinity }) {
  return samples.filter(({ at }) => Date.parse(at) + stepMs > from && Date.parse(at) < to);
}

/** Returns the whole minutes about a part of a graph that was chosen. */
export const wholeMinutes = (from, to) => ({
  from: Math.floor(from / minute) * minute, to: Math.max(Math.floor(from / minute) + 1, Math.ceil(to / minute)) * minute,
});
