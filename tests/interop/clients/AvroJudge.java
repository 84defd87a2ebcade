import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.math.BigDecimal;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.time.ZoneOffset;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.avro.Conversions;
import org.apache.avro.Schema;
import org.apache.avro.data.TimeConversions;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericFixed;
import org.apache.avro.generic.IndexedRecord;
import org.apache.avro.io.BinaryDecoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.ResolvingDecoder;
import org.apache.avro.util.TimePeriod;

/**
 * Says how Apache Avro's GenericDatumReader reads datums under a reader's schema.
 *
 * <p>A line of JSON {"writer": text, "reader": text, "data": [hex]} is answered by a line {"values": [...]}, each of them
 * {"value": ...} or {"error": text}, or by {"error": text} where a schema does not parse.
 */
public final class AvroJudge {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final GenericData DATA = new GenericData();

  static {
    DATA.addLogicalTypeConversion(new TimeConversions.DateConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimeMillisConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimeMicrosConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimestampMillisConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimestampMicrosConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.TimestampNanosConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMillisConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampMicrosConversion());
    DATA.addLogicalTypeConversion(new TimeConversions.LocalTimestampNanosConversion());
    DATA.addLogicalTypeConversion(new Conversions.DecimalConversion());
    DATA.addLogicalTypeConversion(new Conversions.BigDecimalConversion());
    DATA.addLogicalTypeConversion(new Conversions.DurationConversion());
  }

  /** A value of a union, and the number of its branch. */
  private record Branch(int index, Object value) {}

  /** Keeps which branch of a union was read, which a value alone does not always tell. */
  private static final class Reader extends GenericDatumReader<Object> {
    Reader(Schema writer, Schema reader) {
      super(writer, reader, DATA);
    }

    @Override
    protected Object readWithoutConversion(Object old, Schema expected, ResolvingDecoder in) throws IOException {
      if (expected.getType() != Schema.Type.UNION) {
        return super.readWithoutConversion(old, expected, in);
      }
      int index = in.readIndex();
      return new Branch(index, read(null, expected.getTypes().get(index), in));
    }
  }

  private AvroJudge() {}

  public static void main(String[] arguments) throws IOException {
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
      out.flush();
    }
  }

  private static Map<String, Object> answer(JsonNode question) {
    try {
      Schema writer = new Schema.Parser().parse(question.get("writer").textValue());
      Schema reader = new Schema.Parser().parse(question.get("reader").textValue());
      List<Object> values = new ArrayList<>();
      for (JsonNode datum : question.get("data")) {
        values.add(read(writer, reader, HexFormat.of().parseHex(datum.textValue())));
      }
      return Map.of("values", values);
    } catch (RuntimeException refused) {
      return Map.of("error", refused.toString());
    }
  }

  private static Map<String, Object> read(Schema writer, Schema reader, byte[] datum) {
    Map<String, Object> found = new LinkedHashMap<>();
    try {
      BinaryDecoder decoder = DecoderFactory.get().binaryDecoder(datum, null);
      Object value = new Reader(writer, reader).read(null, decoder);
      if (decoder.isEnd()) {
        found.put("value", plain(value, reader));
      } else {
        found.put("error", "bytes are left");
      }
    } catch (IOException | RuntimeException | StackOverflowError refused) {
      found.put("error", refused.toString());
    }
    return found;
  }

  private static Object plain(Object value, Schema schema) {
    if (schema.getType() == Schema.Type.UNION) {
      int index = value instanceof Branch branch ? branch.index() : DATA.resolveUnion(schema, value);
      Object inner = value instanceof Branch branch ? branch.value() : value;
      return Map.of("branch", index, "of", listOf(plain(inner, schema.getTypes().get(index))));
    }
    if (value == null || value instanceof Boolean || value instanceof Integer || value instanceof Long) {
      return value;
    }
    if (value instanceof Float number) {
      return Map.of("float", Float.floatToRawIntBits(number));
    }
    if (value instanceof Double number) {
      return Map.of("double", Double.doubleToRawLongBits(number));
    }
    if (value instanceof ByteBuffer bytes) {
      byte[] copy = new byte[bytes.remaining()];
      bytes.duplicate().get(copy);
      return HexFormat.of().formatHex(copy);
    }
    if (value instanceof GenericFixed fixed) {
      return HexFormat.of().formatHex(fixed.bytes());
    }
    if (value instanceof Instant at) {
      return micros(at);
    }
    if (value instanceof LocalDateTime at) {
      return micros(at.toInstant(ZoneOffset.UTC));
    }
    if (value instanceof LocalDate day) {
      return day.toEpochDay();
    }
    if (value instanceof LocalTime time) {
      return time.toNanoOfDay();
    }
    if (value instanceof BigDecimal number) {
      return number.toPlainString();
    }
    if (value instanceof TimePeriod period) {
      return List.of(period.getMonths(), period.getDays(), period.getMillis());
    }
    if (value instanceof IndexedRecord record) {
      Map<String, Object> fields = new LinkedHashMap<>();
      for (Schema.Field field : schema.getFields()) {
        fields.put(field.name(), plain(record.get(field.pos()), field.schema()));
      }
      return fields;
    }
    if (value instanceof Map<?, ?> map) {
      Map<String, Object> entries = new LinkedHashMap<>();
      map.forEach((key, item) -> entries.put(key.toString(), plain(item, schema.getValueType())));
      return entries;
    }
    if (value instanceof Collection<?> items) {
      List<Object> list = new ArrayList<>();
      items.forEach(item -> list.add(plain(item, schema.getElementType())));
      return list;
    }
    return value.toString();
  }

  private static List<Object> listOf(Object value) {
    List<Object> list = new ArrayList<>();
    list.add(value);
    return list;
  }

  /** Microseconds since 1970, as text: years far away need more than 64 bits. */
  private static String micros(Instant at) {
    return BigDecimal.valueOf(at.getEpochSecond())
        .movePointRight(6)
        .toBigIntegerExact()
        .add(java.math.BigInteger.valueOf(at.getNano() / 1000))
        .toString();
  }
}
