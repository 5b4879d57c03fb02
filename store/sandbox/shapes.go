package sandbox

// part is a kind of place in a tree.
type part int

const (
	plain        part = iota // words and numbers, no node
	done                     // looked at already
	statement                // a statement or subquery: holds a query
	query                    // SELECT, UNION, a recursive CTE
	table                    // what may stand in FROM
	expression               // what has a value
	modifier                 // DISTINCT, ORDER BY, LIMIT
	order                    // one item of ORDER BY
	sample                   // TABLESAMPLE
	caseCheck                // WHEN … THEN …
	replacement              // an item of * REPLACE
	names                    // an item of * EXCLUDE or RENAME: words with keys
	pivot                    // ON … IN … of PIVOT
	pivotEntry               // one value of IN
	constant                 // a typed value
	payload                  // what a value is: a word, a number, or its halves
	dataType                 // a type
	dataTypeInfo             // what a type is made of
)

// shape says what may stand in each field of a node. A field that is not named
// is refused.
type shape map[string]part

// fixed are the shapes of those nodes that come in one form only.
var fixed = map[part]shape{
	// named_param_map numbers the parameters.
	statement:   {"node": query, "named_param_map": done},
	order:       {"type": plain, "null_order": plain, "expression": expression},
	sample:      {"sample_size": constant, "is_percentage": plain, "method": plain, "seed": plain},
	caseCheck:   {"when_expr": expression, "then_expr": expression},
	replacement: {"key": plain, "value": expression},
	names:       {"key": names, "value": plain, "table": plain, "column": plain},
	// No pivot_enum: it would name a type of the catalog.
	pivot:      {"pivot_expressions": expression, "unpivot_names": plain, "entries": pivotEntry},
	pivotEntry: {"values": constant, "star_expr": expression, "alias": plain},
	constant:   {"type": dataType, "is_null": plain, "value": payload},
	payload:    {"upper": plain, "lower": plain, "months": plain, "days": plain, "micros": plain, "children": constant},
}

var modifiers = map[string]shape{
	"DISTINCT_MODIFIER":      {"type": plain, "distinct_on_targets": expression},
	"ORDER_MODIFIER":         {"type": plain, "orders": order},
	"LIMIT_MODIFIER":         {"type": plain, "limit": expression, "offset": expression},
	"LIMIT_PERCENT_MODIFIER": {"type": plain, "limit": expression, "offset": expression},
}

// queries: cte_map is done because it says which names the other fields know.
var queries = map[string]shape{
	"SELECT_NODE": with(queryShape, shape{"select_list": expression, "from_table": table, "where_clause": expression,
		"group_expressions": expression, "group_sets": plain, "aggregate_handling": plain, "having": expression,
		"sample": sample, "qualify": expression}),
	"SET_OPERATION_NODE": with(queryShape, shape{"setop_type": plain, "setop_all": plain, "children": query}),
	"RECURSIVE_CTE_NODE": with(queryShape, shape{"cte_name": plain, "union_all": plain, "aliases": plain,
		"key_targets": expression, "left": query, "right": done}),
}

var queryShape = shape{"type": plain, "modifiers": modifier, "cte_map": done}

var tables = map[string]shape{
	"EMPTY":      tableShape,
	"BASE_TABLE": with(tableShape, shape{"catalog_name": plain, "schema_name": plain, "table_name": plain}),
	"JOIN": with(tableShape, shape{"left": table, "right": table, "condition": expression, "join_type": plain,
		"ref_type": plain, "using_columns": plain, "is_implicit": plain}),
	"SUBQUERY":        with(tableShape, shape{"subquery": statement}),
	"TABLE_FUNCTION":  with(tableShape, shape{"function": done, "with_ordinality": plain}),
	"EXPRESSION_LIST": with(tableShape, shape{"expected_names": plain, "expected_types": dataType, "values": expression}),
	"PIVOT": with(tableShape, shape{"source": table, "aggregates": expression, "unpivot_names": plain,
		"pivots": pivot, "groups": plain, "include_nulls": plain}),
	// No table_name: SHOW and DESCRIBE by name look into the catalog themselves.
	"SHOW_REF": with(tableShape, shape{"query": query, "show_type": plain}),
}

// tableShape has no at_clause: time travel is not to be had.
var tableShape = shape{"type": plain, "alias": plain, "query_location": plain, "sample": sample, "column_name_alias": plain}

var expressions = map[string]shape{
	"BETWEEN":     with(expressionShape, shape{"input": expression, "lower": expression, "upper": expression}),
	"CASE":        with(expressionShape, shape{"case_checks": caseCheck, "else_expr": expression}),
	"CAST":        with(expressionShape, shape{"child": expression, "cast_type": dataType, "try_cast": plain}),
	"COLLATE":     with(expressionShape, shape{"child": expression, "collation": plain}),
	"COLUMN_REF":  with(expressionShape, shape{"column_names": plain}),
	"COMPARISON":  with(expressionShape, shape{"left": expression, "right": expression}),
	"CONJUNCTION": with(expressionShape, shape{"children": expression}),
	"CONSTANT":    with(expressionShape, shape{"value": constant}),
	// No export_state: DuckDB would later trust the bytes of such a state.
	"FUNCTION":             with(functionShape, shape{"filter": expression, "order_bys": modifier, "distinct": plain, "is_operator": plain}),
	"LAMBDA":               with(expressionShape, shape{"lhs": expression, "expr": expression, "syntax_type": plain}),
	"OPERATOR":             with(expressionShape, shape{"children": expression}),
	"PARAMETER":            with(expressionShape, shape{"identifier": plain}),
	"POSITIONAL_REFERENCE": with(expressionShape, shape{"index": plain}),
	"STAR": with(expressionShape, shape{"relation_name": plain, "exclude_list": plain, "qualified_exclude_list": names,
		"rename_list": names, "replace_list": replacement, "columns": plain, "expr": expression}),
	"SUBQUERY": with(expressionShape, shape{"subquery": statement, "subquery_type": plain, "child": expression,
		"comparison_type": plain}),
	// Its children are what stands in parentheses after it. No schema or catalog.
	"TYPE": with(expressionShape, shape{"type_name": plain, "children": expression}),
	"WINDOW": with(functionShape, shape{"partitions": expression, "orders": order, "start": plain, "end": plain,
		"start_expr": expression, "end_expr": expression, "offset_expr": expression, "default_expr": expression,
		"ignore_nulls": plain, "filter_expr": expression, "exclude_clause": plain, "distinct": plain, "arg_orders": order}),
}

var expressionShape = shape{"class": plain, "type": plain, "alias": plain, "query_location": plain}

var functionShape = with(expressionShape, shape{"function_name": plain, "schema": plain, "catalog": plain, "children": expression})

// expressionTypes are the types that an expression of these classes may have.
var expressionTypes = set(
	"COLUMN_REF", "VALUE_CONSTANT", "VALUE_PARAMETER", "POSITIONAL_REFERENCE", "STAR", "FUNCTION", "LAMBDA", "SUBQUERY",
	"CASE_EXPR", "COLLATE", "OPERATOR_CAST", "CONJUNCTION_AND", "CONJUNCTION_OR",
	"COMPARE_EQUAL", "COMPARE_NOTEQUAL", "COMPARE_LESSTHAN", "COMPARE_GREATERTHAN", "COMPARE_LESSTHANOREQUALTO",
	"COMPARE_GREATERTHANOREQUALTO", "COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM", "COMPARE_BETWEEN",
	"COMPARE_NOT_BETWEEN", "COMPARE_IN", "COMPARE_NOT_IN",
	"OPERATOR_NOT", "OPERATOR_IS_NULL", "OPERATOR_IS_NOT_NULL", "OPERATOR_COALESCE", "OPERATOR_NULLIF", "OPERATOR_TRY",
	"OPERATOR_UNPACK", "ARRAY_EXTRACT", "ARRAY_SLICE", "ARRAY_CONSTRUCTOR", "STRUCT_EXTRACT", "ARROW", "GROUPING_FUNCTION",
	"WINDOW_AGGREGATE", "WINDOW_RANK", "WINDOW_RANK_DENSE", "WINDOW_NTILE", "WINDOW_PERCENT_RANK", "WINDOW_CUME_DIST",
	"WINDOW_ROW_NUMBER", "WINDOW_FIRST_VALUE", "WINDOW_LAST_VALUE", "WINDOW_LEAD", "WINDOW_LAG", "WINDOW_NTH_VALUE",
	"WINDOW_FILL", "TYPE",
)

// dataTypes are the types of constants, and what a type is before its name was
// looked up: UNBOUND.
var dataTypes = set(
	"NULL", "BOOLEAN", "TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "UTINYINT", "USMALLINT", "UINTEGER",
	"UBIGINT", "UHUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "VARCHAR", "CHAR", "BLOB", "UUID", "DATE", "TIME", "TIMESTAMP",
	"TIMESTAMP WITH TIME ZONE", "INTERVAL", "LIST", "STRING_LITERAL", "INTEGER_LITERAL", "UNBOUND",
)

// typeNames are DuckDB's types by all their names, but for VARIANT, GEOMETRY and
// TYPE, which nobody needs here, and states of aggregates, whose bytes DuckDB
// trusts.
var typeNames = set(
	"array", "bigint", "bignum", "binary", "bit", "bitstring", "blob", "bool", "boolean", "bpchar", "bytea", "char", "date",
	"datetime", "dec", "decimal", "double", "enum", "float", "float4", "float8", "guid", "hugeint", "int", "int1", "int128",
	"int16", "int2", "int32", "int4", "int64", "int8", "integer", "integral", "interval", "json", "list", "logical", "long",
	"map", "null", "numeric", "nvarchar", "oid", "real", "row", "short", "signed", "smallint", "string", "struct", "text",
	"time", "time with time zone", "time_ns", "timestamp", "timestamp with time zone", "timestamp_ms", "timestamp_ns",
	"timestamp_s", "timestamp_us", "timestamptz", "timetz", "tinyint", "ubigint", "uhugeint", "uint128", "uint16", "uint32",
	"uint64", "uint8", "uinteger", "union", "usmallint", "utinyint", "uuid", "varbinary", "varchar", "varint",
)

// dataTypeInfos: no extension_info.
var dataTypeInfos = map[string]shape{
	"DECIMAL_TYPE_INFO": with(dataTypeShape, shape{"width": plain, "scale": plain}),
	"STRING_TYPE_INFO":  with(dataTypeShape, shape{"collation": plain}),
	"LIST_TYPE_INFO":    with(dataTypeShape, shape{"child_type": dataType}),
	"UNBOUND_TYPE_INFO": with(dataTypeShape, shape{"expr": expression}),
}

var dataTypeShape = shape{"type": plain, "alias": plain}

// with joins two shapes.
func with(a, b shape) shape {
	out := make(shape, len(a)+len(b))
	for _, s := range []shape{a, b} {
		for name, k := range s {
			out[name] = k
		}
	}
	return out
}

func set(words ...string) map[string]bool {
	out := make(map[string]bool, len(words))
	for _, w := range words {
		out[w] = true
	}
	return out
}
