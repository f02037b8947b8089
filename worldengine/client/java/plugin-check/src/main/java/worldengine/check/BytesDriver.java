package worldengine.check;

import com.google.gson.JsonElement;
import com.google.gson.JsonObject;
import com.google.gson.JsonPrimitive;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import worldengine.client.Canonical;
import worldengine.client.Handoff;
import worldengine.client.Json;
import worldengine.client.Precondition;
import worldengine.client.Proposal;
import worldengine.client.Result;
import worldengine.client.contract.ProposalType;

/** The driver of Java for worldengine/client/languages: it answers questions about bytes, a line each. */
final class BytesDriver {
    private BytesDriver() {}

    public static void main(String[] args) throws IOException {
        var out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        var line = new ByteArrayOutputStream();
        var in = new java.io.BufferedInputStream(System.in);
        for (int b; (b = in.read()) >= 0;) {
            if (b != '\n') {
                line.write(b);
                continue;
            }
            out.print(answer(Json.object(line.toByteArray())));
            out.print('\n');
            line.reset();
        }
        out.flush();
    }

    private static JsonObject answer(JsonObject asked) {
        var answer = new JsonObject();
        switch (asked.get("do").getAsString()) {
            case "canonical" -> {
                JsonElement value = asked.get("value");
                answer.addProperty("text", Canonical.json(value));
                answer.addProperty("hash", Canonical.hash(value));
            }
            case "handoff" -> answer.add("handoff", handoff(asked).json());
            case "resultId" -> answer.addProperty("id", Result.deriveId(asked.getAsJsonObject("result")));
            case "verify" -> answer.addProperty("valid", Result.defect(asked.getAsJsonObject("result")).isEmpty());
            case "token" -> answer.addProperty("token", Canonical.townToken(asked.get("townId").getAsString()));
            case "key" -> answer.addProperty("key", Canonical.idempotencyKey(asked.get("runId").getAsString(),
                asked.has("stepId") ? asked.get("stepId").getAsString() : null, asked.get("logicalAttemptId").getAsLong(),
                asked.get("eventType").getAsString(), asked.get("planId").getAsString(),
                asked.get("planVersion").getAsString()));
            default -> throw new IllegalArgumentException("an unknown question: " + asked);
        }
        return answer;
    }

    private static Handoff handoff(JsonObject asked) {
        var town = asked.getAsJsonObject("town");
        var p = asked.getAsJsonObject("proposal");
        var type = ProposalType.named(p.get("type").getAsString()).orElseThrow();
        var proposal = new Proposal(type, p.getAsJsonObject("args").get(type.argument()).getAsString(),
            p.get("actorId").getAsString(), p.get("reason").getAsString(), p.get("priority").getAsDouble(), texts(p),
            preconditions(p), p.has("proposalId") ? p.get("proposalId").getAsString() : null);
        return Handoff.of(town.get("townId").getAsString(), town.get("snapshotHash").getAsString(),
            town.get("decisionEpoch").getAsLong(), proposal);
    }

    private static List<String> texts(JsonObject proposal) {
        return proposal.getAsJsonArray("reasonTags").asList().stream().map(JsonElement::getAsString).toList();
    }

    private static List<Precondition> preconditions(JsonObject proposal) {
        var list = new ArrayList<Precondition>();
        for (var element : proposal.getAsJsonArray("preconditions")) {
            var p = element.getAsJsonObject();
            list.add(new Precondition(p.get("kind").getAsString(), text(p, "targetId"), text(p, "field"),
                p.get("expected")));
        }
        return list;
    }

    private static String text(JsonObject object, String name) {
        return object.get(name) instanceof JsonPrimitive text ? text.getAsString() : null;
    }
}
