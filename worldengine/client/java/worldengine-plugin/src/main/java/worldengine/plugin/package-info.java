/**
 * The kit for authors of game-server plugins. It implements the plugin protocol around one function that
 * changes the game:
 *
 * <pre>{@code
 * TownPlugin plugin = TownPlugin.builder()
 *     .connection("nats://127.0.0.1:4222").world("main").towns("town-threatened")
 *     .memory(dataFolder.resolve("worldengine.memory"))
 *     .mainThread(task -> Bukkit.getScheduler().runTask(this, task))
 *     .apply(command -> switch (command.type()) {
 *         case PROJECT_ADVANCE -> {
 *             walls.grow(command.argument(), command.expectedProgress());
 *             yield Outcome.applied();
 *         }
 *         default -> Outcome.refused("NOT_ALLOWED", "This server does not build that.");
 *     })
 *     .recover(command -> walls.has(command.applyId()) ? Outcome.applied() : Outcome.notBegun())
 *     .start();
 * }</pre>
 *
 * <h2>Guarantees</h2>
 *
 * <p>An applyId is applied at most once per memory. The memory durably records an id as begun before each call
 * of the function, and its outcome afterwards; a repeated request gets that outcome. A refusal for now is
 * remembered for its logical attempt only, and the next attempt calls the function again.
 *
 * <p>Commands of one town are applied one at a time, in the order of their arrival; several towns have their
 * commands applied at once. A command beyond the queue is answered busy. A repeated request is answered busy
 * while its command waits, and in-progress while it is applied; then each reply subject gets the outcome once. A
 * command whose time is over before its turn is not begun; its time counts from its arrival, so the clocks of
 * the machines may differ.
 *
 * <h2>The memory</h2>
 *
 * <p>All answers of the memory are in the heap too, with their snapshots, artifacts and embodiments: an answer without
 * them has some hundred bytes, and 20,000 answers with a snapshot of 10 KB have 200 MB. Lower {@code remember} if
 * yours are large, or answer with snapshots only if the town is not as expected. Answers are made into bytes on the
 * thread that completes the outcome, which is the main thread for {@code apply}.
 *
 * <p>If the disk does not accept an outcome, the command is answered all the same, and this process remembers it. For
 * the next process it is in doubt. A log line of the level SEVERE says so.
 *
 * <h2>Commands in doubt</h2>
 *
 * <p>A command is in doubt if it was begun and its outcome is not in the memory: the function threw, or the
 * process ended. Since the function might apply it twice, {@code recover} is called instead, which finds the
 * outcome in the game. Without it the command is refused for good with OUTCOME_UNKNOWN, and an operator corrects
 * the town.
 *
 * <h2>One process for a town</h2>
 *
 * <p>The kit asks who hosts its towns before it serves them, also after a loss of its connection, and waits while
 * another plugin does. A plugin of {@code allTowns} does not find a plugin of some towns. The memory's
 * file is locked: a second process with the same file does not start.
 *
 * <h2>Threads</h2>
 *
 * <p>The functions run on the game's main thread, a millisecond a tick. A task that a task gives to the executor of
 * {@code mainThread} must run in the next tick: in the same one, the budget would have no effect. The network, the disk and all else is on
 * the kit's own threads, which end with {@code close}.
 */
@NullMarked
package worldengine.plugin;

import org.jspecify.annotations.NullMarked;
