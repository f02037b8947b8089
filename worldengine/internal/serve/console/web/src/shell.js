/** Returns a word as a POSIX shell reads it back, for a command that a person may copy. */
export const quoted = (word) => (/^[A-Za-z0-9_@%+:,./-][A-Za-z0-9_@%+=:,./-]*$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`);
