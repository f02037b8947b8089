package example.minestom;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayList;
import java.util.List;
import net.minestom.server.coordinate.BlockVec;
import net.minestom.server.instance.block.Block;
import worldengine.plugin.Command;
import worldengine.plugin.Outcome;
import worldengine.plugin.SafeText;

/**
 * What a command looks like in the game: a function of the command and of its town's place alone, so that a command
 * that was cut off by a crash is simply done again.
 *
 * @param refusal why it is not done; null if it is
 * @param blocks blocks to place, from the ground up
 * @param line a line of chat; null for none
 */
record Plan(Outcome refusal, List<Placed> blocks, String line) {
    /** A block at its place. */
    record Placed(BlockVec at, Block block) {}

    /** A wall has 100 blocks, one for each percent of progress. */
    private static final int LENGTH = 20, HEIGHT = 5, LANES = 16, SPACING = 2;
    /** Salvage lies in a row of chests; each lap of the row changes their kind. */
    private static final int ROW = 16;
    private static final Block[] CHESTS = {Block.CHEST, Block.TRAPPED_CHEST};

    static Plan of(Command command, Settings.Place place) {
        return switch (command.type()) {
            case PROJECT_ADVANCE -> command.expectedProject() == null
                ? refused("UNKNOWN_PROJECT", "The town has no such project.")
                : new Plan(null, wall(place, command.argument(), command.expectedProgress()), null);
            case SALVAGE_PLAN -> new Plan(null, List.of(chest(place, command.expectedDay())), null);
            case MAYOR_ACCEPT_MISSION -> {
                var title = command.expectedMission() == null ? command.argument() : command.expectedMission();
                yield said(command, "The mayor accepts a mission: " + SafeText.line(title, 80));
            }
            case MISSION_COMPLETE -> said(command, "The mission is complete: " + SafeText.line(command.argument(), 80));
            case MISSION_FAIL -> said(command, "The mission has failed: " + SafeText.line(command.argument(), 80));
            case TOWNSFOLK_TALK -> switch (command.argument()) {
                case "morale-boost" -> said(command, actor(command) + "Chin up, neighbours: we stand together!");
                case "casual" -> said(command, actor(command) + "Nice weather today.");
                default -> refused("UNKNOWN_TALK", "Nobody knows what to say about that.");
            };
        };
    }

    /** Returns a project's wall at some progress. The lane follows from the project's id; two may get the same one. */
    private static List<Placed> wall(Settings.Place place, String projectId, double progress) {
        int lane = Math.floorMod(ByteBuffer.wrap(sha256(projectId)).getInt(), LANES);
        // Progress is decimal: 0.29 * 100 is less than 29 in binary.
        int count = (int) Math.floor(Math.clamp(progress, 0, 1) * LENGTH * HEIGHT + 1e-6);
        var blocks = new ArrayList<Placed>();
        for (int i = 0; i < count; i++) {
            blocks.add(new Placed(new BlockVec(place.x() + i % LENGTH, place.y() + i / LENGTH,
                place.z() + SPACING * (lane + 1)), Block.STONE_BRICKS));
        }
        return blocks;
    }

    private static Placed chest(Settings.Place place, long day) {
        int along = (int) (day % ROW);
        return new Placed(new BlockVec(place.x() + SPACING * along, place.y(), place.z()),
            CHESTS[(int) (day / ROW % CHESTS.length)]);
    }

    private static Plan said(Command command, String line) {
        return new Plan(null, List.of(), "[" + SafeText.line(command.townId(), 40) + "] " + line);
    }

    private static String actor(Command command) { return SafeText.line(command.actorId(), 40) + ": "; }

    private static Plan refused(String code, String message) {
        return new Plan(Outcome.refused(code, message), List.of(), null);
    }

    private static byte[] sha256(String text) {
        try {
            return MessageDigest.getInstance("SHA-256").digest(text.getBytes(StandardCharsets.UTF_8));
        } catch (NoSuchAlgorithmException e) {
            throw new AssertionError(e);
        }
    }
}
