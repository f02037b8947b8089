package worldengine.client;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.List;
import org.junit.jupiter.api.Test;
import worldengine.client.contract.ProposalType;

/** What a proposal refuses without a server. */
class ProposalTest {
    private static String refusal(ProposalType type, String argument) {
        return assertThrows(IllegalArgumentException.class, () -> Proposal.of(type, argument, "a", "r")).getMessage();
    }

    @Test
    void namesTheArgumentThatDoesNotExist() {
        assertEquals("/proposal/args/focus must be one of scarcity, dread, general, not gold",
            refusal(ProposalType.SALVAGE_PLAN, "gold"));
        assertEquals("/proposal/args/projectId must not be empty", refusal(ProposalType.PROJECT_ADVANCE, ""));
        for (String focus : List.of("scarcity", "dread", "general")) {
            assertEquals(focus, Proposal.of(ProposalType.SALVAGE_PLAN, focus, "a", "r").argument());
        }
    }
}
