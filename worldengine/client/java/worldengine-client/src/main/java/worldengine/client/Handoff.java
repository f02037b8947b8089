package worldengine.client;

import com.google.gson.JsonObject;
import java.util.Map;
import java.util.Objects;

/**
 * An execution-handoff.v1: a proposal for a town in a state that the agent has read.
 *
 * @param json the handoff as it is sent
 */
public record Handoff(JsonObject json) {
    /** Copies the JSON, as it may be changed. */
    public Handoff {
        json = json.deepCopy();
    }

    /** Makes the handoff of a proposal for the town in this state. The server checks it. */
    public static Handoff of(Town town, Proposal proposal) {
        return of(town.townId(), town.snapshotHash(), town.decisionEpoch(), proposal);
    }

    /** Makes the handoff of a proposal for a town in the state with this hash and this epoch. */
    public static Handoff of(String townId, String snapshotHash, long decisionEpoch, Proposal p) {
        var type = p.type();
        var args = Json.tree(Map.of(type.argument(), p.argument()));
        String proposalId = Objects.requireNonNullElseGet(p.proposalId(), () -> "proposal_" + Canonical.hash(Json.of(
            "actorId", p.actorId(), "townId", townId, "type", type.wire(), "args", args, "priority", p.priority(),
            "decisionEpoch", decisionEpoch, "snapshotHash", snapshotHash)));
        String command = type.verb() + " " + townId + " " + p.argument();
        var preconditions = Json.tree(p.preconditions().stream().map(Precondition::json).toList());
        var proposal = Json.of("schemaVersion", "proposal.v2", "proposalId", proposalId, "snapshotHash", snapshotHash,
            "decisionEpoch", decisionEpoch, "type", type.wire(), "actorId", p.actorId(), "townId", townId,
            "priority", p.priority(), "reason", p.reason(), "reasonTags", p.reasonTags(), "args", args,
            "preconditions", preconditions);
        var requirements = Json.of("expectedSnapshotHash", snapshotHash, "expectedDecisionEpoch", decisionEpoch,
            "preconditions", preconditions);
        return new Handoff(Json.of("schemaVersion", "execution-handoff.v1",
            "handoffId", "handoff_" + Canonical.hash(Json.of("proposalId", proposalId, "command", command)),
            "advisory", true, "proposalId", proposalId, "idempotencyKey", proposalId, "snapshotHash", snapshotHash,
            "decisionEpoch", decisionEpoch, "proposal", proposal, "command", command,
            "executionRequirements", requirements));
    }

    /** Its id, which is also the applyId of its command; empty if another library left it out. */
    public String handoffId() { return text(json, "handoffId"); }

    /** Its key: a town accepts one handoff of a key. */
    public String idempotencyKey() { return text(json, "idempotencyKey"); }

    /** Its town. */
    public String townId() {
        var proposal = Json.child(json, "proposal");
        return proposal == null ? "" : text(proposal, "townId");
    }

    private static String text(JsonObject object, String name) {
        return Objects.requireNonNullElse(Json.text(object, name), "");
    }
}
