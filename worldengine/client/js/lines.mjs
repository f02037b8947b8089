/**
 * Yields the lines of a stream of text. A line ends at \n alone: node:readline also ends one at U+2028, U+2029
 * and \r, of which JSON leaves the first two in texts.
 * @param {AsyncIterable<string>} stream
 * @returns {AsyncGenerator<string>}
 */
export async function* linesOf(stream) {
  let begun = "";
  for await (const chunk of stream) {
    const [end, ...more] = chunk.split("\n");
    begun += end;
    if (more.length === 0) continue;
    yield begun;
    begun = more.pop() ?? "";
    yield* more;
  }
  if (begun !== "") yield begun;
}
