//! Selectors of hosts by their labels (apimachinery `pkg/labels/selector.go`).

use std::collections::BTreeMap;

use api::metal3::HostSelector;

/// A selector that was read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(Vec<Requirement>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Test {
    In(Vec<String>),
    NotIn(Vec<String>),
    Exists,
    DoesNotExist,
    GreaterThan(i64),
    LessThan(i64),
}

impl Selector {
    /// Reads it.
    ///
    /// # Errors
    /// What is wrong with an expression, a sentence.
    pub fn of(selector: &HostSelector) -> Result<Self, String> {
        let labels = selector.match_labels.iter();
        let mut all: Vec<Requirement> =
            labels.map(|(key, value)| Requirement { key: key.clone(), test: Test::In(vec![value.clone()]) }).collect();
        for (index, expression) in selector.match_expressions.iter().enumerate() {
            let at = format!("spec.hostSelector.matchExpressions[{index}]");
            let test = test(&expression.operator, &expression.values).map_err(|what| format!("{at}: {what}"))?;
            all.push(Requirement { key: expression.key.clone(), test });
        }
        Ok(Self(all))
    }

    /// Whether a host with these labels is meant.
    #[must_use]
    pub fn matches(&self, labels: Option<&BTreeMap<String, String>>) -> bool {
        self.0.iter().all(|requirement| {
            let found = labels.and_then(|labels| labels.get(&requirement.key));
            let number = || found.and_then(|text| text.parse::<i64>().ok());
            match &requirement.test {
                Test::In(values) => found.is_some_and(|found| values.contains(found)),
                Test::NotIn(values) => found.is_none_or(|found| !values.contains(found)),
                Test::Exists => found.is_some(),
                Test::DoesNotExist => found.is_none(),
                Test::GreaterThan(bound) => number().is_some_and(|number| number > *bound),
                Test::LessThan(bound) => number().is_some_and(|number| number < *bound),
            }
        })
    }
}

fn test(operator: &str, values: &[String]) -> Result<Test, String> {
    let one = || match values {
        [value] => Ok(value.clone()),
        _ => Err(format!("the operator {operator} takes one value, and {} are given", values.len())),
    };
    let number = || {
        let value = one()?;
        value
            .parse::<i64>()
            .map_err(|_| format!("the operator {operator} takes a whole number, and {value:?} is given"))
    };
    let none = |test| match values {
        [] => Ok(test),
        _ => Err(format!("the operator {operator} takes no values")),
    };
    let some = || match values {
        [] => Err(format!("the operator {operator} takes one value or more")),
        values => Ok(values.to_vec()),
    };
    match operator.to_lowercase().as_str() {
        "=" | "==" => Ok(Test::In(vec![one()?])),
        "!=" => Ok(Test::NotIn(vec![one()?])),
        "in" => Ok(Test::In(some()?)),
        "notin" => Ok(Test::NotIn(some()?)),
        "exists" => none(Test::Exists),
        "!" => none(Test::DoesNotExist),
        "gt" => Ok(Test::GreaterThan(number()?)),
        "lt" => Ok(Test::LessThan(number()?)),
        _ => Err(format!("there is no operator {operator:?}; there are =, ==, !=, in, notin, exists and !")),
    }
}
