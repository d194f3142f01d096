package io.deltalakedb;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.EqualNullSafe;
import org.apache.spark.sql.catalyst.expressions.EqualTo;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.GreaterThan;
import org.apache.spark.sql.catalyst.expressions.GreaterThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.IsNotNull;
import org.apache.spark.sql.catalyst.expressions.IsNull;
import org.apache.spark.sql.catalyst.expressions.LessThan;
import org.apache.spark.sql.catalyst.expressions.LessThanOrEqual;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.expressions.Not;
import org.apache.spark.sql.catalyst.expressions.Or;
import org.apache.spark.sql.catalyst.expressions.StartsWith;
import org.apache.spark.sql.types.BooleanType;
import org.apache.spark.sql.types.ByteType;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.DateType;
import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.types.DecimalType;
import org.apache.spark.sql.types.DoubleType;
import org.apache.spark.sql.types.FloatType;
import org.apache.spark.sql.types.IntegerType;
import org.apache.spark.sql.types.LongType;
import org.apache.spark.sql.types.ShortType;
import org.apache.spark.sql.types.TimestampNTZType;
import org.apache.spark.sql.types.TimestampType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's conditions as a typed tree for the endpoint. A tree may hold for more rows than its
 * condition, never for fewer: parts that cannot be sent are left out of an AND. Values are sent
 * with their types, not as SQL text, which would have to be read in the session's zone.
 */
final class FilterTree {
  static final ObjectMapper JSON = new ObjectMapper();

  private static final int MOST_VALUES = 1000;

  private FilterTree() {}

  /** Null: nothing of the condition can be sent. */
  static ObjectNode of(Expression e) {
    if (e instanceof And and) {
      ObjectNode left = of(and.left());
      ObjectNode right = of(and.right());
      return left == null ? right : right == null ? left : both("and", left, right);
    }
    if (e instanceof Or or) {
      ObjectNode left = of(or.left());
      ObjectNode right = of(or.right());
      return left == null || right == null ? null : both("or", left, right);
    }
    if (e instanceof Not not) {
      return negated(not.child());
    }
    if (e instanceof IsNull test) {
      return isNull(test.child());
    }
    if (e instanceof IsNotNull test) {
      return test("notnull", test.child());
    }
    if (e instanceof StartsWith prefix) {
      return prefix("prefix", prefix);
    }
    if (e instanceof In || e instanceof InSet) {
      return list("in", e);
    }
    if (e instanceof Attribute flag && flag.dataType() instanceof BooleanType) {
      return compare("=", flag, Literal.TrueLiteral());
    }
    return comparison(e);
  }

  private static ObjectNode comparison(Expression e) {
    if (e instanceof EqualTo c) {
      return compare("=", c.left(), c.right());
    }
    if (e instanceof EqualNullSafe c) {
      return compare("=", c.left(), c.right()); // a null literal is not sent
    }
    if (e instanceof LessThan c) {
      return compare("<", c.left(), c.right());
    }
    if (e instanceof LessThanOrEqual c) {
      return compare("<=", c.left(), c.right());
    }
    if (e instanceof GreaterThan c) {
      return compare(">", c.left(), c.right());
    }
    return e instanceof GreaterThanOrEqual c ? compare(">=", c.left(), c.right()) : null;
  }

  private static ObjectNode negated(Expression e) {
    if (e instanceof EqualTo c) {
      return compare("!=", c.left(), c.right());
    }
    if (e instanceof In || e instanceof InSet) {
      return list("notin", e);
    }
    if (e instanceof StartsWith prefix) {
      return prefix("notprefix", prefix);
    }
    if (e instanceof Attribute flag && flag.dataType() instanceof BooleanType) {
      return compare("=", flag, Literal.FalseLiteral());
    }
    if (e instanceof IsNull test) {
      return test("notnull", test.child());
    }
    return null;
  }

  /** A comparison of a column with a value is null exactly where the column is. */
  private static ObjectNode isNull(Expression e) {
    ObjectNode compared = comparison(e);
    if (compared != null && !(e instanceof EqualNullSafe)) {
      return node("null").set("c", compared.get("c"));
    }
    return test("null", e);
  }

  /** A tree of two parts, flat where they are of its own kind: a chain of ORs is nested deeply. */
  private static ObjectNode both(String kind, ObjectNode left, ObjectNode right) {
    ObjectNode made = node(kind);
    ArrayNode all = made.putArray("p");
    for (ObjectNode part : List.of(left, right)) {
      if (part.get("k").asText().equals(kind)) {
        all.addAll((ArrayNode) part.get("p"));
      } else {
        all.add(part);
      }
    }
    return made;
  }

  private static ObjectNode node(String kind) {
    return JSON.createObjectNode().put("k", kind);
  }

  private static ObjectNode test(String kind, Expression of) {
    ArrayNode column = column(of);
    return column == null ? null : node(kind).set("c", column);
  }

  private static ObjectNode prefix(String kind, StartsWith e) {
    ArrayNode column = column(e.left());
    ObjectNode value = value(folded(e.right()));
    return column == null || value == null || !value.has("s")
        ? null
        : node(kind).<ObjectNode>set("c", column).set("v", value);
  }

  private static ObjectNode list(String kind, Expression e) {
    Expression of;
    List<Literal> literals = new ArrayList<>();
    if (e instanceof In in) {
      of = in.value();
      CollectionConverters.asJava(in.list()).forEach(item -> literals.add(folded(item)));
    } else {
      InSet in = (InSet) e;
      of = in.child();
      CollectionConverters.asJava(in.hset())
          .forEach(item -> literals.add(new Literal(item, in.child().dataType())));
    }
    ArrayNode column = column(of);
    if (column == null || literals.size() > MOST_VALUES) {
      return null;
    }
    ArrayNode values = JSON.createArrayNode();
    for (Literal literal : literals) {
      if (literal == null) {
        return null;
      }
      if (literal.value() == null) { // `x in (1, null)` is true for 1 alone
        if (kind.equals("in")) {
          continue;
        }
        return null;
      }
      ObjectNode value = value(literal);
      if (value == null) {
        return null;
      }
      values.add(value);
    }
    return node(kind).<ObjectNode>set("c", column).set("v", values);
  }

  private static ObjectNode compare(String op, Expression left, Expression right) {
    ArrayNode column = column(left);
    ObjectNode value = value(folded(column == null ? left : right));
    String said = op;
    if (column == null) {
      column = column(right);
      said =
          switch (op) {
            case "<" -> ">";
            case "<=" -> ">=";
            case ">" -> "<";
            case ">=" -> "<=";
            default -> op;
          };
    }
    return column == null || value == null
        ? null
        : node("cmp").put("o", said).<ObjectNode>set("c", column).set("v", value);
  }

  private static ArrayNode column(Expression e) {
    if (e instanceof Attribute a) {
      return JSON.createArrayNode().add(a.name());
    }
    if (e instanceof GetStructField f) {
      ArrayNode outer = column(f.child());
      return outer == null ? null : outer.add(f.extractFieldName());
    }
    return null;
  }

  private static Literal folded(Expression e) {
    if (e instanceof Literal l) {
      return l;
    }
    try {
      return e.foldable() ? new Literal(e.eval(InternalRow.empty()), e.dataType()) : null;
    } catch (RuntimeException failed) { // 1 / 0: the query fails when it runs
      return null;
    }
  }

  private static ObjectNode value(Literal literal) {
    if (literal == null || literal.value() == null) {
      return null;
    }
    Object value = literal.value();
    DataType type = literal.dataType();
    ObjectNode made = JSON.createObjectNode();
    if (type instanceof DateType) {
      return made.put("date", ((Integer) value).longValue());
    }
    if (type instanceof TimestampType) {
      return made.put("ts", (Long) value);
    }
    if (type instanceof TimestampNTZType) {
      return made.put("ntz", (Long) value);
    }
    if (type instanceof BooleanType) {
      return made.put("b", (Boolean) value);
    }
    if (type instanceof ByteType
        || type instanceof ShortType
        || type instanceof IntegerType
        || type instanceof LongType) {
      return made.put("i", ((Number) value).longValue());
    }
    if (type instanceof FloatType || type instanceof DoubleType) {
      return made.put("f", Double.toString(((Number) value).doubleValue()));
    }
    if (type instanceof DecimalType) {
      return made.put("d", ((Decimal) value).toJavaBigDecimal().toPlainString());
    }
    // With another collation than the binary one, the order is another one.
    return type.equals(DataTypes.StringType) ? made.put("s", value.toString()) : null;
  }
}
