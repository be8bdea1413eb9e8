//! What hardware-classification-controller's tests and documents say of what matches, as data.

use api::metal3::HardwareCharacteristics;
use classification::{judge, matches};
use inventory::HardwareDetails;
use serde::Deserialize;
use serde_json::Value;

#[derive(Deserialize)]
struct Row {
    name: String,
    wanted: Value,
    found: Value,
    /// Fields that do not hold; none if it matches.
    lacks: Vec<String>,
}

#[test]
fn each_row_of_upstreams_tables_is_judged_as_upstream_judges_it() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("../data/upstream.json")).unwrap();
    assert!(rows.len() >= 60, "{}", rows.len());
    let mut names = std::collections::BTreeSet::new();
    for row in &rows {
        assert!(names.insert(&row.name), "{} twice", row.name);
        let wanted: HardwareCharacteristics = serde_json::from_value(row.wanted.clone()).unwrap();
        assert_eq!(serde_json::to_value(&wanted).unwrap(), row.wanted, "{}: a field that is not known", row.name);
        let found: HardwareDetails = serde_json::from_value(row.found.clone()).unwrap();
        let lacks: Vec<&str> = judge(&wanted, &found).iter().map(|mismatch| mismatch.field).collect();
        assert_eq!(lacks, row.lacks, "{}", row.name);
        assert_eq!(matches(&wanted, &found), row.lacks.is_empty(), "{}", row.name);
    }
}
