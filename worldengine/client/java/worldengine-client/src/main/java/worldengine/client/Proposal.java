package worldengine.client;

import java.util.List;
import org.jspecify.annotations.Nullable;
import worldengine.client.contract.ProposalType;

/**
 * What an agent wants for a town. {@link #of} has what is required; the {@code with} methods add the rest.
 *
 * @param type the type
 * @param argument the value of its one argument, such as the id of a project
 * @param actorId who proposes it
 * @param reason why, for people
 * @param priority from 0 to 1; 0.5 by default
 * @param reasonTags tags of the reason
 * @param preconditions what must hold when the server accepts it
 * @param proposalId the id, of agents that name their proposals themselves; null means the hash of its content
 */
public record Proposal(ProposalType type, String argument, String actorId, String reason, double priority,
        List<String> reasonTags, List<Precondition> preconditions, @Nullable String proposalId) {
    /** Copies the lists. */
    public Proposal {
        String path = "/proposal/args/" + type.argument();
        if (argument.isEmpty()) throw new IllegalArgumentException(path + " must not be empty");
        if (!type.allowed().isEmpty() && !type.allowed().contains(argument)) {
            throw new IllegalArgumentException(
                path + " must be one of " + String.join(", ", type.allowed()) + ", not " + argument);
        }
        if (!(priority >= 0 && priority <= 1)) {
            throw new IllegalArgumentException("priority must be from 0 to 1, not " + priority);
        }
        reasonTags = List.copyOf(reasonTags);
        preconditions = List.copyOf(preconditions);
    }

    /** Returns a proposal with the priority 0.5, without tags and preconditions. */
    public static Proposal of(ProposalType type, String argument, String actorId, String reason) {
        return new Proposal(type, argument, actorId, reason, 0.5, List.of(), List.of(), null);
    }

    /** Returns it with another priority, from 0 to 1. */
    public Proposal withPriority(double priority) {
        return new Proposal(type, argument, actorId, reason, priority, reasonTags, preconditions, proposalId);
    }

    /** Returns it with tags of its reason. */
    public Proposal withReasonTags(List<String> reasonTags) {
        return new Proposal(type, argument, actorId, reason, priority, reasonTags, preconditions, proposalId);
    }

    /** Returns it with preconditions. */
    public Proposal withPreconditions(List<Precondition> preconditions) {
        return new Proposal(type, argument, actorId, reason, priority, reasonTags, preconditions, proposalId);
    }

    /** Returns it with an id of its own: {@code proposal_} and 64 lower-case hex digits. */
    public Proposal withId(String proposalId) {
        return new Proposal(type, argument, actorId, reason, priority, reasonTags, preconditions, proposalId);
    }
}
