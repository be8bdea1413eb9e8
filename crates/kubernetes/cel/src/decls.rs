//! Declarations of all functions: names, overloads and their types, as cel-go's standard library and Kubernetes 1.34
//! (compatibility version 1.33, the limit for its new expressions) declare them.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::types::Type;

/// One form of a function.
#[derive(Debug)]
pub(crate) struct Overload {
    pub id: &'static str,
    pub member: bool,
    pub args: Vec<Type>,
    pub result: Type,
}

/// All forms of all functions by name, in the order of declaration.
pub(crate) static FUNCTIONS: LazyLock<HashMap<&'static str, Vec<Overload>>> = LazyLock::new(|| {
    let mut all: HashMap<&'static str, Vec<Overload>> = HashMap::new();
    for line in TABLE.lines().chain(LIBRARY.lines()) {
        if let Some((name, overload)) = declaration(line) {
            all.entry(name).or_default().push(overload);
        }
    }
    all
});

/// Reads `name id argument argument > result`; a dot before the first argument makes it a receiver.
fn declaration(line: &'static str) -> Option<(&'static str, Overload)> {
    let (left, result) = line.split_once(" > ")?;
    let mut words = left.split_whitespace();
    let (name, id) = (words.next()?, words.next()?);
    let mut member = false;
    let args = words
        .map(|w| {
            let plain = w.strip_prefix('.');
            member |= plain.is_some();
            parse_type(plain.unwrap_or(w))
        })
        .collect();
    Some((name, Overload { id, member, args, result: parse_type(result.trim()) }))
}

fn parse_type(text: &str) -> Type {
    if let Some((head, inner)) = text.strip_suffix(')').and_then(|t| t.split_once('(')) {
        return match head {
            "list" => Type::list(parse_type(inner)),
            "opt" => Type::optional(parse_type(inner)),
            "type" => Type::Type(Some(parse_type(inner).into())),
            _ => inner.split_once(',').map_or(Type::Error, |(k, v)| Type::map(parse_type(k), parse_type(v))),
        };
    }
    match text {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "dyn" => Type::Dyn,
        "timestamp" => Type::Timestamp,
        "duration" => Type::Duration,
        "IP" => Type::Opaque("net.IP".into()),
        "CIDR" => Type::Opaque("net.CIDR".into()),
        "URL" | "Quantity" | "Semver" => Type::object(&format!("kubernetes.{text}")),
        "Format" => Type::object("kubernetes.NamedFormat"),
        "Authorizer" | "PathCheck" | "GroupCheck" | "ResourceCheck" | "Decision" => {
            Type::object(&format!("kubernetes.authorization.{text}"))
        }
        other => Type::Param(other.into()),
    }
}

/// The names of types.
pub(crate) fn type_names(name: &str) -> Option<Type> {
    let param = |n: &str| Type::Param(n.into());
    Some(match name {
        "bool" => Type::Bool,
        "int" => Type::Int,
        "uint" => Type::Uint,
        "double" => Type::Double,
        "string" => Type::String,
        "bytes" => Type::Bytes,
        "null_type" => Type::Null,
        "list" => Type::list(param("A")),
        "map" => Type::map(param("A"), param("B")),
        "type" => Type::Type(None),
        "google.protobuf.Timestamp" => Type::Timestamp,
        "google.protobuf.Duration" => Type::Duration,
        "optional_type" => Type::optional(param("V")),
        "net.IP" | "net.CIDR" => Type::Opaque(name.into()),
        "kubernetes.URL" | "kubernetes.Quantity" | "kubernetes.Semver" | "kubernetes.NamedFormat" => Type::object(name),
        _ => return None,
    })
}

/// Functions of cel-go's standard library (`common/stdlib/standard.go`) and its optional types.
const TABLE: &str = "\
_?_:_ conditional bool A A > A
_&&_ logical_and bool bool > bool
_||_ logical_or bool bool > bool
!_ logical_not bool > bool
@not_strictly_false not_strictly_false bool > bool
_==_ equals A A > bool
_!=_ not_equals A A > bool
_+_ add_bytes bytes bytes > bytes
_+_ add_double double double > double
_+_ add_duration_duration duration duration > duration
_+_ add_duration_timestamp duration timestamp > timestamp
_+_ add_timestamp_duration timestamp duration > timestamp
_+_ add_int64 int int > int
_+_ add_list list(A) list(A) > list(A)
_+_ add_string string string > string
_+_ add_uint64 uint uint > uint
_/_ divide_double double double > double
_/_ divide_int64 int int > int
_/_ divide_uint64 uint uint > uint
_%_ modulo_int64 int int > int
_%_ modulo_uint64 uint uint > uint
_*_ multiply_double double double > double
_*_ multiply_int64 int int > int
_*_ multiply_uint64 uint uint > uint
-_ negate_double double > double
-_ negate_int64 int > int
_-_ subtract_double double double > double
_-_ subtract_duration_duration duration duration > duration
_-_ subtract_int64 int int > int
_-_ subtract_timestamp_duration timestamp duration > timestamp
_-_ subtract_timestamp_timestamp timestamp timestamp > duration
_-_ subtract_uint64 uint uint > uint
_<_ less_bool bool bool > bool
_<_ less_int64 int int > bool
_<_ less_int64_double int double > bool
_<_ less_int64_uint64 int uint > bool
_<_ less_uint64 uint uint > bool
_<_ less_uint64_double uint double > bool
_<_ less_uint64_int64 uint int > bool
_<_ less_double double double > bool
_<_ less_double_int64 double int > bool
_<_ less_double_uint64 double uint > bool
_<_ less_string string string > bool
_<_ less_bytes bytes bytes > bool
_<_ less_timestamp timestamp timestamp > bool
_<_ less_duration duration duration > bool
_<=_ less_equals_bool bool bool > bool
_<=_ less_equals_int64 int int > bool
_<=_ less_equals_int64_double int double > bool
_<=_ less_equals_int64_uint64 int uint > bool
_<=_ less_equals_uint64 uint uint > bool
_<=_ less_equals_uint64_double uint double > bool
_<=_ less_equals_uint64_int64 uint int > bool
_<=_ less_equals_double double double > bool
_<=_ less_equals_double_int64 double int > bool
_<=_ less_equals_double_uint64 double uint > bool
_<=_ less_equals_string string string > bool
_<=_ less_equals_bytes bytes bytes > bool
_<=_ less_equals_timestamp timestamp timestamp > bool
_<=_ less_equals_duration duration duration > bool
_>_ greater_bool bool bool > bool
_>_ greater_int64 int int > bool
_>_ greater_int64_double int double > bool
_>_ greater_int64_uint64 int uint > bool
_>_ greater_uint64 uint uint > bool
_>_ greater_uint64_double uint double > bool
_>_ greater_uint64_int64 uint int > bool
_>_ greater_double double double > bool
_>_ greater_double_int64 double int > bool
_>_ greater_double_uint64 double uint > bool
_>_ greater_string string string > bool
_>_ greater_bytes bytes bytes > bool
_>_ greater_timestamp timestamp timestamp > bool
_>_ greater_duration duration duration > bool
_>=_ greater_equals_bool bool bool > bool
_>=_ greater_equals_int64 int int > bool
_>=_ greater_equals_int64_double int double > bool
_>=_ greater_equals_int64_uint64 int uint > bool
_>=_ greater_equals_uint64 uint uint > bool
_>=_ greater_equals_uint64_double uint double > bool
_>=_ greater_equals_uint64_int64 uint int > bool
_>=_ greater_equals_double double double > bool
_>=_ greater_equals_double_int64 double int > bool
_>=_ greater_equals_double_uint64 double uint > bool
_>=_ greater_equals_string string string > bool
_>=_ greater_equals_bytes bytes bytes > bool
_>=_ greater_equals_timestamp timestamp timestamp > bool
_>=_ greater_equals_duration duration duration > bool
_[_] index_list list(A) int > A
_[_] index_map map(A,B) A > B
_[_] optional_list_index_value opt(list(V)) int > opt(V)
_[_] optional_map_index_value opt(map(K,V)) K > opt(V)
_[?_] list_optindex_optional_int list(V) int > opt(V)
_[?_] optional_list_optindex_optional_int opt(list(V)) int > opt(V)
_[?_] map_optindex_optional_value map(K,V) K > opt(V)
_[?_] optional_map_optindex_optional_value opt(map(K,V)) K > opt(V)
@in in_list A list(A) > bool
@in in_map A map(A,B) > bool
size size_bytes bytes > int
size bytes_size .bytes > int
size size_list list(A) > int
size list_size .list(A) > int
size size_map map(A,B) > int
size map_size .map(A,B) > int
size size_string string > int
size string_size .string > int
bool bool_to_bool bool > bool
bool string_to_bool string > bool
bytes bytes_to_bytes bytes > bytes
bytes string_to_bytes string > bytes
double double_to_double double > double
double int64_to_double int > double
double string_to_double string > double
double uint64_to_double uint > double
duration duration_to_duration duration > duration
duration int64_to_duration int > duration
duration string_to_duration string > duration
dyn to_dyn A > dyn
int int64_to_int64 int > int
int double_to_int64 double > int
int duration_to_int64 duration > int
int string_to_int64 string > int
int timestamp_to_int64 timestamp > int
int uint64_to_int64 uint > int
string string_to_string string > string
string bool_to_string bool > string
string bytes_to_string bytes > string
string double_to_string double > string
string duration_to_string duration > string
string int64_to_string int > string
string timestamp_to_string timestamp > string
string uint64_to_string uint > string
string cidr_to_string CIDR > string
string ip_to_string IP > string
timestamp timestamp_to_timestamp timestamp > timestamp
timestamp int64_to_timestamp int > timestamp
timestamp string_to_timestamp string > timestamp
type type A > type(A)
uint uint64_to_uint64 uint > uint
uint double_to_uint64 double > uint
uint int64_to_uint64 int > uint
uint string_to_uint64 string > uint
contains contains_string .string string > bool
endsWith ends_with_string .string string > bool
startsWith starts_with_string .string string > bool
matches matches string string > bool
matches matches_string .string string > bool
getFullYear timestamp_to_year .timestamp > int
getFullYear timestamp_to_year_with_tz .timestamp string > int
getMonth timestamp_to_month .timestamp > int
getMonth timestamp_to_month_with_tz .timestamp string > int
getDayOfYear timestamp_to_day_of_year .timestamp > int
getDayOfYear timestamp_to_day_of_year_with_tz .timestamp string > int
getDayOfMonth timestamp_to_day_of_month .timestamp > int
getDayOfMonth timestamp_to_day_of_month_with_tz .timestamp string > int
getDate timestamp_to_day_of_month_1_based .timestamp > int
getDate timestamp_to_day_of_month_1_based_with_tz .timestamp string > int
getDayOfWeek timestamp_to_day_of_week .timestamp > int
getDayOfWeek timestamp_to_day_of_week_with_tz .timestamp string > int
getHours timestamp_to_hours .timestamp > int
getHours timestamp_to_hours_with_tz .timestamp string > int
getHours duration_to_hours .duration > int
getMinutes timestamp_to_minutes .timestamp > int
getMinutes timestamp_to_minutes_with_tz .timestamp string > int
getMinutes duration_to_minutes .duration > int
getSeconds timestamp_to_seconds .timestamp > int
getSeconds timestamp_to_seconds_tz .timestamp string > int
getSeconds duration_to_seconds .duration > int
getMilliseconds timestamp_to_milliseconds .timestamp > int
getMilliseconds timestamp_to_milliseconds_with_tz .timestamp string > int
getMilliseconds duration_to_milliseconds .duration > int
optional.of optional_of V > opt(V)
optional.ofNonZeroValue optional_ofNonZeroValue V > opt(V)
optional.none optional_none > opt(V)
value optional_value .opt(V) > V
hasValue optional_hasValue .opt(V) > bool
or optional_or_optional .opt(V) opt(V) > opt(V)
orValue optional_orValue_value .opt(V) V > V
cel.@mapInsert @mapInsert_map_map map(K,V) map(K,V) > map(K,V)
cel.@mapInsert @mapInsert_map_key_value map(K,V) K V > map(K,V)
";

/// Libraries beyond the standard one (`k8s.io/apiserver/pkg/cel/library` and cel-go's `ext`).
const LIBRARY: &str = "\
charAt string_char_at_int .string int > string
indexOf string_index_of_string .string string > int
indexOf string_index_of_string_int .string string int > int
indexOf list_a_index_of_int .list(A) A > int
lastIndexOf string_last_index_of_string .string string > int
lastIndexOf string_last_index_of_string_int .string string int > int
lastIndexOf list_a_last_index_of_int .list(A) A > int
lowerAscii string_lower_ascii .string > string
upperAscii string_upper_ascii .string > string
replace string_replace_string_string .string string string > string
replace string_replace_string_string_int .string string string int > string
split string_split_string .string string > list(string)
split string_split_string_int .string string int > list(string)
substring string_substring_int .string int > string
substring string_substring_int_int .string int int > string
trim string_trim .string > string
join list_join .list(string) > string
join list_join_string .list(string) string > string
format string_format .string list(dyn) > string
strings.quote strings_quote string > string
isSorted list_int_is_sorted_bool .list(int) > bool
isSorted list_uint_is_sorted_bool .list(uint) > bool
isSorted list_double_is_sorted_bool .list(double) > bool
isSorted list_bool_is_sorted_bool .list(bool) > bool
isSorted list_duration_is_sorted_bool .list(duration) > bool
isSorted list_timestamp_is_sorted_bool .list(timestamp) > bool
isSorted list_string_is_sorted_bool .list(string) > bool
isSorted list_bytes_is_sorted_bool .list(bytes) > bool
sum list_int_sum_int .list(int) > int
sum list_uint_sum_uint .list(uint) > uint
sum list_double_sum_double .list(double) > double
sum list_duration_sum_duration .list(duration) > duration
max list_int_max_int .list(int) > int
max list_uint_max_uint .list(uint) > uint
max list_double_max_double .list(double) > double
max list_bool_max_bool .list(bool) > bool
max list_duration_max_duration .list(duration) > duration
max list_timestamp_max_timestamp .list(timestamp) > timestamp
max list_string_max_string .list(string) > string
max list_bytes_max_bytes .list(bytes) > bytes
min list_int_min_int .list(int) > int
min list_uint_min_uint .list(uint) > uint
min list_double_min_double .list(double) > double
min list_bool_min_bool .list(bool) > bool
min list_duration_min_duration .list(duration) > duration
min list_timestamp_min_timestamp .list(timestamp) > timestamp
min list_string_min_string .list(string) > string
min list_bytes_min_bytes .list(bytes) > bytes
find string_find_string .string string > string
findAll string_find_all_string .string string > list(string)
findAll string_find_all_string_int .string string int > list(string)
url string_to_url string > URL
isURL is_url_string string > bool
getScheme url_get_scheme .URL > string
getHost url_get_host .URL > string
getHostname url_get_hostname .URL > string
getPort url_get_port .URL > string
getEscapedPath url_get_escaped_path .URL > string
getQuery url_get_query .URL > map(string,list(string))
quantity string_to_quantity string > Quantity
isQuantity is_quantity_string string > bool
sign quantity_sign Quantity > int
isGreaterThan quantity_is_greater_than .Quantity Quantity > bool
isGreaterThan semver_is_greater_than .Semver Semver > bool
isLessThan quantity_is_less_than .Quantity Quantity > bool
isLessThan semver_is_less_than .Semver Semver > bool
compareTo quantity_compare_to .Quantity Quantity > int
compareTo semver_compare_to .Semver Semver > int
asApproximateFloat quantity_get_float .Quantity > double
asInteger quantity_get_int .Quantity > int
isInteger quantity_is_integer .Quantity > bool
add quantity_add .Quantity Quantity > Quantity
add quantity_add_int .Quantity int > Quantity
sub quantity_sub .Quantity Quantity > Quantity
sub quantity_sub_int .Quantity int > Quantity
ip string_to_ip string > IP
ip cidr_ip .CIDR > IP
isIP is_ip string > bool
ip.isCanonical ip_is_canonical string > bool
family ip_family .IP > int
isUnspecified ip_is_unspecified .IP > bool
isLoopback ip_is_loopback .IP > bool
isLinkLocalMulticast ip_is_link_local_multicast .IP > bool
isLinkLocalUnicast ip_is_link_local_unicast .IP > bool
isGlobalUnicast ip_is_global_unicast .IP > bool
cidr string_to_cidr string > CIDR
isCIDR is_cidr string > bool
containsIP cidr_contains_ip_string .CIDR string > bool
containsIP cidr_contains_ip_ip .CIDR IP > bool
containsCIDR cidr_contains_cidr_string .CIDR string > bool
containsCIDR cidr_contains_cidr .CIDR CIDR > bool
prefixLength cidr_prefix_length .CIDR > int
masked cidr_masked .CIDR > CIDR
validate format-validate .Format string > opt(list(string))
format.named format-named string > opt(Format)
format.dns1123Label format.dns1123Label > Format
format.dns1123Subdomain format.dns1123Subdomain > Format
format.dns1035Label format.dns1035Label > Format
format.qualifiedName format.qualifiedName > Format
format.dns1123LabelPrefix format.dns1123LabelPrefix > Format
format.dns1123SubdomainPrefix format.dns1123SubdomainPrefix > Format
format.dns1035LabelPrefix format.dns1035LabelPrefix > Format
format.labelValue format.labelValue > Format
format.uri format.uri > Format
format.uuid format.uuid > Format
format.byte format.byte > Format
format.date format.date > Format
format.datetime format.datetime > Format
semver string_to_semver string > Semver
semver string_bool_to_semver string bool > Semver
isSemver is_semver_string string > bool
isSemver is_semver_string_bool string bool > bool
major semver_major .Semver > int
minor semver_minor .Semver > int
patch semver_patch .Semver > int
sets.contains list_sets_contains_list list(T) list(T) > bool
sets.equivalent list_sets_equivalent_list list(T) list(T) > bool
sets.intersects list_sets_intersects_list list(T) list(T) > bool
path authorizer_path .Authorizer string > PathCheck
group authorizer_group .Authorizer string > GroupCheck
serviceAccount authorizer_serviceaccount .Authorizer string string > Authorizer
resource groupcheck_resource .GroupCheck string > ResourceCheck
subresource resourcecheck_subresource .ResourceCheck string > ResourceCheck
namespace resourcecheck_namespace .ResourceCheck string > ResourceCheck
name resourcecheck_name .ResourceCheck string > ResourceCheck
fieldSelector authorizer_fieldselector .ResourceCheck string > ResourceCheck
labelSelector authorizer_labelselector .ResourceCheck string > ResourceCheck
check pathcheck_check .PathCheck string > Decision
check resourcecheck_check .ResourceCheck string > Decision
errored decision_errored .Decision > bool
error decision_error .Decision > string
allowed decision_allowed .Decision > bool
reason decision_reason .Decision > string
";
