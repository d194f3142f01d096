import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.iceberg.MetadataUpdate;
import org.apache.iceberg.MetadataUpdateParser;
import org.apache.iceberg.PartitionSpec;
import org.apache.iceberg.Schema;
import org.apache.iceberg.SchemaParser;
import org.apache.iceberg.SortOrder;
import org.apache.iceberg.SortOrderParser;
import org.apache.iceberg.PartitionSpecParser;
import org.apache.iceberg.TableMetadata;
import org.apache.iceberg.TableMetadataParser;
import org.apache.iceberg.UpdateRequirement;
import org.apache.iceberg.UpdateRequirementParser;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.JsonNode;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.ObjectMapper;
import org.apache.iceberg.shaded.com.fasterxml.jackson.databind.node.ObjectNode;
import org.apache.iceberg.view.ImmutableViewVersion;
import org.apache.iceberg.view.ViewMetadata;
import org.apache.iceberg.view.ViewMetadataParser;
import org.apache.iceberg.view.ViewVersion;
import org.apache.iceberg.view.ViewVersionParser;

/**
 * Applies requests to metadata with Iceberg's own classes: one JSON object a line in, one a line out.
 *
 * <p>It does what org.apache.iceberg.rest.CatalogHandlers does between loading and writing a table or a view.
 */
public final class MetadataJudge {
  private static final ObjectMapper MAPPER = new ObjectMapper();

  private MetadataJudge() {}

  public static void main(String[] args) throws Exception {
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      ObjectNode answer = MAPPER.createObjectNode();
      try {
        String result = answer(MAPPER.readTree(line));
        answer.set("result", result == null ? null : MAPPER.readTree(result));
      } catch (Exception | StackOverflowError e) {
        answer.put("error", e.getClass().getSimpleName());
        answer.put("message", String.valueOf(e.getMessage()));
      }
      out.println(MAPPER.writeValueAsString(answer));
      out.flush();
    }
  }

  private static String answer(JsonNode request) throws Exception {
    switch (request.get("ask").asText()) {
      case "table":
        return table(request);
      case "view":
        return view(request);
      case "new-table":
        return newTable(request);
      case "new-view":
        return newView(request);
      case "parse-table":
        return TableMetadataParser.toJson(TableMetadataParser.fromJson(request.get("text").asText()));
      case "parse-view":
        return ViewMetadataParser.toJson(ViewMetadataParser.fromJson(request.get("text").asText()));
      default:
        throw new IllegalArgumentException("Unknown question");
    }
  }

  private static List<UpdateRequirement> requirements(JsonNode request) throws Exception {
    List<UpdateRequirement> parsed = new ArrayList<>();
    for (JsonNode one : request.get("requirements")) {
      parsed.add(UpdateRequirementParser.fromJson(MAPPER.writeValueAsString(one)));
    }
    return parsed;
  }

  private static List<MetadataUpdate> updates(JsonNode request) throws Exception {
    List<MetadataUpdate> parsed = new ArrayList<>();
    for (JsonNode one : request.get("updates")) {
      parsed.add(MetadataUpdateParser.fromJson(MAPPER.writeValueAsString(one)));
    }
    return parsed;
  }

  private static String table(JsonNode request) throws Exception {
    TableMetadata base = null;
    if (request.hasNonNull("base")) {
      String location = request.hasNonNull("location") ? request.get("location").asText() : null;
      base = TableMetadataParser.fromJson(location, MAPPER.writeValueAsString(request.get("base")));
    }
    List<UpdateRequirement> requirements = requirements(request);
    List<MetadataUpdate> updates = updates(request);
    for (UpdateRequirement requirement : requirements) {
      requirement.validate(base);
    }
    TableMetadata.Builder builder = base == null ? empty(updates) : TableMetadata.buildFrom(base);
    for (MetadataUpdate update : updates) {
      update.applyTo(builder);
    }
    return TableMetadataParser.toJson(builder.build());
  }

  private static TableMetadata.Builder empty(List<MetadataUpdate> updates) {
    for (MetadataUpdate update : updates) {
      if (update instanceof MetadataUpdate.UpgradeFormatVersion) {
        return TableMetadata.buildFromEmpty(((MetadataUpdate.UpgradeFormatVersion) update).formatVersion());
      }
    }
    return TableMetadata.buildFromEmpty();
  }

  private static String view(JsonNode request) throws Exception {
    ViewMetadata base = ViewMetadataParser.fromJson(MAPPER.writeValueAsString(request.get("base")));
    List<UpdateRequirement> requirements = requirements(request);
    List<MetadataUpdate> updates = updates(request);
    for (UpdateRequirement requirement : requirements) {
      requirement.validate(base);
    }
    ViewMetadata.Builder builder = ViewMetadata.buildFrom(base);
    for (MetadataUpdate update : updates) {
      update.applyTo(builder);
    }
    ViewMetadata updated = builder.build();
    return ViewMetadataParser.toJson(updated.changes().isEmpty() ? base : updated);
  }

  private static String newTable(JsonNode request) throws Exception {
    Schema schema = SchemaParser.fromJson(MAPPER.writeValueAsString(request.get("schema")));
    PartitionSpec spec = PartitionSpec.unpartitioned();
    if (request.hasNonNull("partition-spec")) {
      spec = PartitionSpecParser.fromJson(request.get("partition-spec")).bind(schema);
    }
    SortOrder order = SortOrder.unsorted();
    if (request.hasNonNull("write-order")) {
      order = SortOrderParser.fromJson(request.get("write-order")).bind(schema);
    }
    Map<String, String> properties = new HashMap<>();
    request.get("properties").fields().forEachRemaining(one -> properties.put(one.getKey(), one.getValue().asText()));
    String location = request.get("location").asText();
    return TableMetadataParser.toJson(TableMetadata.newTableMetadata(schema, spec, order, location, properties));
  }

  private static String newView(JsonNode request) throws Exception {
    Schema schema = SchemaParser.fromJson(MAPPER.writeValueAsString(request.get("schema")));
    Map<String, String> properties = new HashMap<>();
    request.get("properties").fields().forEachRemaining(one -> properties.put(one.getKey(), one.getValue().asText()));
    ViewVersion asked = ViewVersionParser.fromJson(request.get("view-version"));
    ViewVersion first =
        ImmutableViewVersion.builder()
            .from(asked)
            .versionId(1)
            .schemaId(schema.schemaId())
            .timestampMillis(System.currentTimeMillis())
            .build();
    ViewMetadata metadata =
        ViewMetadata.builder()
            .setProperties(properties)
            .setLocation(request.get("location").asText())
            .setCurrentVersion(first, schema)
            .build();
    return ViewMetadataParser.toJson(metadata);
  }
}
