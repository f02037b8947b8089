package worldengine.client;

import com.google.gson.Gson;
import com.google.gson.JsonArray;
import com.google.gson.JsonElement;
import com.google.gson.JsonNull;
import com.google.gson.JsonObject;
import com.google.gson.JsonParseException;
import com.google.gson.JsonPrimitive;
import com.google.gson.Strictness;
import com.google.gson.TypeAdapter;
import com.google.gson.stream.JsonReader;
import com.google.gson.stream.JsonToken;
import java.io.IOException;
import java.io.StringReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;
import org.jspecify.annotations.Nullable;

/** Reads and writes trees of JSON. */
public final class Json {
    private static final TypeAdapter<JsonElement> TREES = new Gson().getAdapter(JsonElement.class);

    private Json() {}

    /** Reads exactly one JSON object, strictly. It throws a {@link JsonParseException} for anything else. */
    public static JsonObject object(byte[] utf8) {
        return object(new String(utf8, StandardCharsets.UTF_8));
    }

    /** Reads exactly one JSON object, strictly. It throws a {@link JsonParseException} for anything else. */
    public static JsonObject object(String text) {
        var reader = new JsonReader(new StringReader(text));
        reader.setStrictness(Strictness.STRICT);
        try {
            JsonElement value = TREES.read(reader);
            if (value instanceof JsonObject object && reader.peek() == JsonToken.END_DOCUMENT) return object;
            throw new JsonParseException("the text is not exactly one JSON object");
        } catch (IOException | NumberFormatException | StackOverflowError e) {
            throw new JsonParseException("the text is no JSON: " + e.getMessage(), e);
        }
    }

    /** Returns the text of a member; null if it has none, or another type. */
    public static @Nullable String text(JsonObject object, String name) {
        var value = object.get(name);
        return value != null && value.isJsonPrimitive() && value.getAsJsonPrimitive().isString()
            ? value.getAsString() : null;
    }

    /** Returns the integer of a member; the default if it has none, or another type. */
    public static long integer(JsonObject object, String name, long otherwise) {
        var value = object.get(name);
        if (value == null || !value.isJsonPrimitive() || !value.getAsJsonPrimitive().isNumber()) return otherwise;
        try {
            return value.getAsBigDecimal().longValueExact();
        } catch (ArithmeticException | NumberFormatException e) {
            return otherwise;
        }
    }

    /** Returns whether a member is true. */
    public static boolean isTrue(JsonObject object, String name) {
        var value = object.get(name);
        return value != null && value.isJsonPrimitive() && value.getAsJsonPrimitive().isBoolean()
            && value.getAsBoolean();
    }

    /** Returns the object of a member; null if it has none, or another type. */
    public static @Nullable JsonObject child(JsonObject object, String name) {
        return object.get(name) instanceof JsonObject child ? child : null;
    }

    /** Returns the objects of a list; none if there is no list. */
    static <T> List<T> list(JsonObject object, String name, Function<JsonObject, T> read) {
        var list = new ArrayList<T>();
        if (object.get(name) instanceof JsonArray array) {
            for (var element : array) {
                if (element instanceof JsonObject member) list.add(read.apply(member));
            }
        }
        return List.copyOf(list);
    }

    /** Returns an object of names and values in turn; a null value is left out. */
    static JsonObject of(@Nullable Object... members) {
        var object = new JsonObject();
        for (int i = 0; i < members.length; i += 2) {
            var value = members[i + 1];
            if (value != null) object.add((String) members[i], tree(value));
        }
        return object;
    }

    /** Returns the tree of a text, number, boolean, map, list or tree. */
    static JsonElement tree(Object value) {
        if (value instanceof JsonElement element) return element;
        if (value instanceof String text) return new JsonPrimitive(text);
        if (value instanceof Number number) return new JsonPrimitive(number);
        if (value instanceof Boolean bool) return new JsonPrimitive(bool);
        if (value instanceof Map<?, ?> map) {
            var object = new JsonObject();
            map.forEach((name, member) -> object.add((String) name, member == null ? JsonNull.INSTANCE : tree(member)));
            return object;
        }
        if (value instanceof Iterable<?> list) {
            var array = new JsonArray();
            for (var element : list) array.add(tree(element));
            return array;
        }
        throw new IllegalArgumentException("no JSON of a " + value.getClass().getName());
    }

    /** Returns the members of an object that are among the names. */
    static JsonObject only(JsonObject object, String... names) {
        var some = new JsonObject();
        for (var name : names) {
            if (object.has(name)) some.add(name, object.get(name));
        }
        return some;
    }

    static byte[] bytes(JsonElement value) {
        return value.toString().getBytes(StandardCharsets.UTF_8); // toString writes JSON nulls, as sent
    }
}
