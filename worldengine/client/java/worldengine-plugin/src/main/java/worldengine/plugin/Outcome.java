package worldengine.plugin;

import com.google.gson.JsonObject;
import java.util.List;
import java.util.regex.Pattern;
import org.jspecify.annotations.Nullable;

/** What became of a command in the game. */
public sealed interface Outcome {
    /** It is done, now or before, and the town is as the world's rules expect it. */
    static Applied applied() { return new Applied(null, List.of(), null); }

    /**
     * It is not done, and never will be.
     *
     * @param reasonCode for machines: upper-case words such as {@code PROTECTED_AREA}
     * @param message the same for people, in a sentence
     */
    static Outcome refused(String reasonCode, String message) { return new Refused(reasonCode, message, false); }

    /** It is not done in this attempt; the engine makes another one. */
    static Outcome refusedForNow(String reasonCode, String message) { return new Refused(reasonCode, message, true); }

    /** Nothing of it is in the game: {@code apply} is called again. */
    static Outcome notBegun() { return new NotBegun(); }

    /** Nobody knows yet whether it is in the game: {@code recover} is called with the next request. */
    static Outcome unknown() { return new Unknown(); }

    /**
     * The command is done.
     *
     * @param snapshot the town as it is after the command, a whole snapshot.v1; null if it is as expected
     * @param artifacts references to what the command left elsewhere, each an artifact.v1; at most 64
     * @param embodiment how the game embodied it, {@code {backendHint?, actions?}}; null for nothing to say
     */
    record Applied(@Nullable JsonObject snapshot, List<JsonObject> artifacts, @Nullable JsonObject embodiment)
            implements Outcome {
        /** Copies the list. */
        public Applied {
            artifacts = List.copyOf(artifacts);
        }

        /** Returns it with the town as it is after the command. */
        public Applied withSnapshot(JsonObject snapshot) { return new Applied(snapshot, artifacts, embodiment); }

        /** Returns it with references to what the command left elsewhere. */
        public Applied withArtifacts(List<JsonObject> artifacts) { return new Applied(snapshot, artifacts, embodiment); }

        /** Returns it with how the game embodied the command. */
        public Applied withEmbodiment(JsonObject embodiment) { return new Applied(snapshot, artifacts, embodiment); }
    }

    /** The command is not done. */
    record Refused(String reasonCode, String message, boolean forNow) implements Outcome {
        private static final Pattern CODE = Pattern.compile("[A-Z][A-Z0-9_]{0,63}");

        /** Checks the code. */
        public Refused {
            if (!CODE.matcher(reasonCode).matches()) {
                throw new IllegalArgumentException("a reason code is 1 to 64 of A-Z 0-9 _, such as PROTECTED_AREA, not \""
                    + reasonCode + '"');
            }
        }
    }

    /** The command is not begun. */
    record NotBegun() implements Outcome {}

    /** The command is in doubt. */
    record Unknown() implements Outcome {}
}
