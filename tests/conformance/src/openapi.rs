//! OpenAPI documents in protobuf, read back into the JSON that they were made of: by the field numbers of gnostic's
//! `OpenAPIv2.proto` and `OpenAPIv3.proto`, so that a number that is wrong shows as a member that is missing.

use std::collections::BTreeMap;
use std::sync::OnceLock;

use serde_json::{Map, Value, json};

/// Messages with their fields: `NUMBER=KEY:TYPE`. `KEY[]` is a list; `*` holds named members of the object itself; `|` is a
/// choice, which is the object itself. Types: `text`, `bool`, `int`, `double`, `any` (YAML text), or a message.
const V3: &str = "
Document 1=openapi:text 2=info:Info 4=paths:Paths 5=components:Components 6=security[]:Requirement 9=*:any
Info 1=title:text 2=description:text 6=version:text
Paths 1=*:PathItem 2=*:any
PathItem 1=$ref:text 2=summary:text 3=description:text 4=get:Operation 5=put:Operation 6=post:Operation 7=delete:Operation \
 8=options:Operation 9=head:Operation 10=patch:Operation 11=trace:Operation 13=parameters[]:ParameterOr 14=*:any
Operation 1=tags[]:text 2=summary:text 3=description:text 5=operationId:text 6=parameters[]:ParameterOr 7=requestBody:BodyOr \
 8=responses:Responses 10=deprecated:bool 11=security[]:Requirement 13=*:any
ParameterOr 1=|:Parameter 2=|:Reference
Parameter 1=name:text 2=in:text 3=description:text 4=required:bool 5=deprecated:bool 10=schema:SchemaOr 14=*:any
BodyOr 1=|:Body 2=|:Reference
Body 1=description:text 2=content:Contents 3=required:bool 4=*:any
Contents 1=*:Media
Media 1=schema:SchemaOr 5=*:any
Responses 1=default:ResponseOr 2=*:ResponseOr 3=*:any
ResponseOr 1=|:Response 2=|:Reference
Response 1=description:text 3=content:Contents 5=*:any
Reference 1=$ref:text 2=summary:text 3=description:text
Components 1=schemas:Schemas 7=securitySchemes:Schemes 10=*:any
Schemas 1=*:SchemaOr
Schemes 1=*:SchemeOr
SchemeOr 1=|:Scheme 2=|:Reference
Scheme 1=type:text 2=description:text 3=name:text 4=in:text 5=scheme:text 6=bearerFormat:text 9=*:any
Requirement 1=*:Texts
Texts 1=value[]:text
SchemaOr 1=|:Schema 2=|:Reference
Schema 1=nullable:bool 3=readOnly:bool 4=writeOnly:bool 7=example:any 8=deprecated:bool 9=title:text 10=multipleOf:double \
 11=maximum:double 12=exclusiveMaximum:bool 13=minimum:double 14=exclusiveMinimum:bool 15=maxLength:int 16=minLength:int \
 17=pattern:text 18=maxItems:int 19=minItems:int 20=uniqueItems:bool 21=maxProperties:int 22=minProperties:int \
 23=required[]:text 24=enum[]:any 25=type:text 26=allOf[]:SchemaOr 27=oneOf[]:SchemaOr 28=anyOf[]:SchemaOr 29=not:Schema \
 30=items:Items 31=properties:Schemas 32=additionalProperties:Additional 33=default:Default 34=description:text \
 35=format:text 36=*:any
Items 1=|:SchemaOr
Additional 1=|:SchemaOr 2=|:bool
Default 1=|:double 2=|:bool 3=|:text
";

/// The same for version 2.
const V2: &str = "
Document 1=swagger:text 2=info:Info 3=host:text 4=basePath:text 5=schemes[]:text 6=consumes[]:text 7=produces[]:text 8=paths:Paths \
 9=definitions:Schemas 10=parameters:Parameters 11=responses:Responses 12=security[]:Requirement 13=securityDefinitions:Securities 16=*:any
Info 1=title:text 2=version:text 3=description:text
Paths 1=*:any 2=*:PathItem
PathItem 1=$ref:text 2=get:Operation 3=put:Operation 4=post:Operation 5=delete:Operation 6=options:Operation 7=head:Operation \
 8=patch:Operation 9=parameters[]:ParametersItem 10=*:any
Operation 1=tags[]:text 2=summary:text 3=description:text 5=operationId:text 6=produces[]:text 7=consumes[]:text \
 8=parameters[]:ParametersItem 9=responses:Codes 10=schemes[]:text 11=deprecated:bool 13=*:any
ParametersItem 1=|:Parameter 2=|:Reference
Parameter 1=|:InBody 2=|:Elsewhere
InBody 1=description:text 2=name:text 3=in:text 4=required:bool 5=schema:Schema 6=*:any
Elsewhere 1=|:InHeader 2=|:InForm 3=|:InQuery 4=|:InPath
InHeader 1=required:bool 2=in:text 3=description:text 4=name:text 5=type:text 6=format:text 19=uniqueItems:bool
InForm 1=required:bool 2=in:text 3=description:text 4=name:text 6=type:text 7=format:text
InQuery 1=required:bool 2=in:text 3=description:text 4=name:text 5=allowEmptyValue:bool 6=type:text 7=format:text 20=uniqueItems:bool
InPath 1=required:bool 2=in:text 3=description:text 4=name:text 5=type:text 6=format:text 19=uniqueItems:bool
Reference 1=$ref:text 2=description:text
Codes 1=*:ResponseOr 2=*:any
ResponseOr 1=|:Response 2=|:Reference
Response 1=description:text 2=schema:SchemaItem 5=*:any
SchemaItem 1=|:Schema
Responses 1=*:Response
Parameters 1=*:Parameter
Schemas 1=*:Schema
Requirement 1=*:Texts
Texts 1=value[]:text
Securities 1=*:Security
Security 2=|:Key
Key 1=type:text 2=name:text 3=in:text 4=description:text 5=*:any
Schema 1=$ref:text 2=format:text 3=title:text 4=description:text 5=default:any 6=multipleOf:double 7=maximum:double \
 8=exclusiveMaximum:bool 9=minimum:double 10=exclusiveMinimum:bool 11=maxLength:int 12=minLength:int 13=pattern:text \
 14=maxItems:int 15=minItems:int 16=uniqueItems:bool 17=maxProperties:int 18=minProperties:int 19=required[]:text \
 20=enum[]:any 21=additionalProperties:Additional 22=type:Type 23=items:Items 24=allOf[]:Schema 25=properties:Schemas \
 31=*:any
Type 1=|:text
Items 1=|:Schema
Additional 1=|:Schema 2=|:bool
";

struct Field {
    key: String,
    list: bool,
    ty: String,
}

/// Messages by name, their fields by number.
type Messages = BTreeMap<String, BTreeMap<u64, Field>>;

fn messages(text: &str) -> Messages {
    let field = |text: &str| {
        let (number, rest) = text.split_once('=')?;
        let (key, ty) = rest.split_once(':')?;
        let (key, list) = key.strip_suffix("[]").map_or((key, false), |key| (key, true));
        Some((number.parse().ok()?, Field { key: key.to_owned(), list, ty: ty.to_owned() }))
    };
    let message = |line: &str| {
        let (name, fields) = line.split_once(' ')?;
        Some((name.to_owned(), fields.split_whitespace().filter_map(field).collect()))
    };
    text.lines().filter_map(message).collect()
}

/// A body of this media type as JSON; what it is instead, if it is none.
pub fn decode(media: &str, body: &[u8]) -> Value {
    static TABLES: OnceLock<[Messages; 2]> = OnceLock::new();
    let [v2, v3] = TABLES.get_or_init(|| [messages(V2), messages(V3)]);
    let table = if media.contains("spec.v3") { v3 } else { v2 };
    message(table, "Document", body).unwrap_or_else(|| json!({"no document": body.len()}))
}

fn message(table: &Messages, name: &str, mut rest: &[u8]) -> Option<Value> {
    let fields = table.get(name)?;
    let mut out = Map::new();
    let mut choice = None;
    while !rest.is_empty() {
        let (number, wire) = take_field(&mut rest)?;
        let Some(field) = fields.get(&number) else {
            out.insert(format!("unknown field {number} of {name}"), Value::Null);
            continue;
        };
        match field.key.as_str() {
            "*" => {
                let Wire::Bytes(mut pair) = wire else { return None };
                let (mut key, mut inner) = (String::new(), Wire::Bytes(&[]));
                while !pair.is_empty() {
                    match take_field(&mut pair)? {
                        (1, Wire::Bytes(text)) => key = String::from_utf8(text.to_vec()).ok()?,
                        (2, found) => inner = found,
                        _ => return None,
                    }
                }
                out.insert(key, value(table, &field.ty, &inner)?);
            }
            "|" => choice = Some(value(table, &field.ty, &wire)?),
            key => {
                let found = value(table, &field.ty, &wire)?;
                if let (true, Value::Array(list)) = (field.list, out.entry(key).or_insert_with(|| json!([]))) {
                    list.push(found);
                } else {
                    out.insert(key.to_owned(), found);
                }
            }
        }
    }
    Some(choice.unwrap_or(Value::Object(out)))
}

enum Wire<'a> {
    Number(u64),
    Fixed([u8; 8]),
    Bytes(&'a [u8]),
}

fn take_field<'a>(rest: &mut &'a [u8]) -> Option<(u64, Wire<'a>)> {
    let key = take_number(rest)?;
    let wire = match key & 7 {
        0 => Wire::Number(take_number(rest)?),
        1 => {
            let (head, tail) = rest.split_first_chunk::<8>()?;
            *rest = tail;
            Wire::Fixed(*head)
        }
        2 => {
            let length = usize::try_from(take_number(rest)?).ok()?;
            let (head, tail) = rest.split_at_checked(length)?;
            *rest = tail;
            Wire::Bytes(head)
        }
        _ => return None,
    };
    Some((key >> 3, wire))
}

fn take_number(rest: &mut &[u8]) -> Option<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (&byte, tail) = rest.split_first()?;
        *rest = tail;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

fn value(table: &Messages, ty: &str, wire: &Wire<'_>) -> Option<Value> {
    Some(match (ty, wire) {
        ("text", Wire::Bytes(bytes)) => json!(String::from_utf8(bytes.to_vec()).ok()?),
        ("bool", Wire::Number(set)) => json!(*set != 0),
        ("int", Wire::Number(number)) => json!(number.cast_signed()),
        ("double", Wire::Fixed(bytes)) => json!(f64::from_le_bytes(*bytes)),
        ("any", &Wire::Bytes(mut bytes)) => match take_field(&mut bytes)? {
            (2, Wire::Bytes(text)) => json!(String::from_utf8(text.to_vec()).ok()?),
            _ => return None,
        },
        (name, Wire::Bytes(bytes)) => message(table, name, bytes)?,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_document_is_read_by_its_numbers() {
        // openapi: "3.0.0" components { schemas { name: "A" value { schema { type: "string" x-a: "b\n" } } } }
        let extension = [&[0xa2, 0x02, 11, 0x0a, 3][..], b"x-a", &[0x12, 4, 0x12, 2], b"b\n"].concat();
        let schema = [&[0xca, 0x01, 6][..], b"string", &extension].concat();
        let length = u8::try_from(schema.len()).unwrap();
        let named = [&[0x0a, 1][..], b"A", &[0x12, length + 2, 0x0a, length], &schema].concat();
        let length = u8::try_from(named.len()).unwrap();
        let body = [&[0x0a, 5][..], b"3.0.0", &[0x2a, length + 4, 0x0a, length + 2, 0x0a, length], &named].concat();
        let read = decode("application/com.github.proto-openapi.spec.v3.v1.0+protobuf", &body);
        let expected = json!({"openapi": "3.0.0", "components": {"schemas": {"A": {"type": "string", "x-a": "b\n"}}}});
        assert_eq!(read, expected);
        assert_eq!(decode("application/x.spec.v3", b"\xff"), json!({"no document": 1}));
    }
}
