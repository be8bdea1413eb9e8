//! What becomes of a host that has no status of a server's own: every combination of what is known, and what holds for all of them.

use jiff::Timestamp;
use proptest::prelude::*;
use provisioning_plan::in_use::{Facts, Found, Past, Recorded, Runs, Told, UNKNOWN, Why, found, is_behind, names};

const OWNER: &str = "11111111-1111-1111-1111-111111111111";

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

/// Provisioned with this, begun at this second.
fn runs(second: i64, asked: &str) -> Runs {
    Runs { wish: Some(format!("{} {asked}", at(second))), owner: OWNER.into() }
}

/// What a record may say; of times, 100 is in the middle.
fn records() -> Vec<Recorded> {
    let unknown = Runs { wish: None, owner: OWNER.into() };
    vec![
        Recorded::Nothing,
        Recorded::Unused,
        Recorded::Unclear,
        Recorded::Emptied { ended: None },
        Recorded::Emptied { ended: Some(at(50)) },
        Recorded::Emptied { ended: Some(at(100)) },
        Recorded::Emptied { ended: Some(at(150)) },
        Recorded::Runs(runs(100, "b")),
        Recorded::Runs(unknown),
    ]
}

fn told() -> Vec<Told<'static>> {
    let mut all = vec![Told::Here];
    for asks_for in ["b", "a", "nothing"] {
        for (is_claimed, known_since) in [(false, None), (true, None), (false, Some(at(100))), (true, Some(at(100)))] {
            // Where inspection is disabled, known hardware tells nothing.
            for has_past in [is_claimed || known_since.is_some(), is_claimed] {
                all.push(Told::Lost { asks_for, has_past, is_claimed, known_since });
            }
        }
    }
    for provisioning in [None, Some(at(50)), Some(at(100)), Some(at(150))] {
        for runs in [None, Some("a"), Some("b")] {
            all.push(Told::Restored { provisioning, runs });
        }
    }
    all
}

const CONSENTS: [Option<&str>; 4] = [None, Some("somebody"), Some(UNKNOWN), Some(OWNER)];
const POWER: [Option<bool>; 3] = [None, Some(false), Some(true)];

/// The rule once more, as a table: the first line that fits.
fn expected(recorded: &Recorded, told: &Told<'_>, powered_on: Option<bool>, consent: Option<&str>) -> &'static str {
    let is_lost = matches!(told, Told::Lost { .. });
    let is_restored = matches!(told, Told::Restored { .. });
    let runs = matches!(recorded, Recorded::Runs(_));
    let knows_wish = matches!(recorded, Recorded::Runs(runs) if runs.wish.is_some());
    let asks_for_b = matches!(told, Told::Lost { asks_for: "b", .. });
    let says_b = matches!(told, Told::Restored { runs: Some("b"), .. });
    let tells = |second| matches!(told, Told::Restored { provisioning: Some(time), .. } if *time >= at(second));
    let (past, claimed, known) = match told {
        Told::Lost { has_past, is_claimed, known_since, .. } => (*has_past, *is_claimed, known_since.is_some()),
        _ => (false, false, false),
    };
    let emptied_since = matches!(recorded, Recorded::Emptied { ended: Some(ended) } if *ended > at(100));
    let lines = [
        (!is_lost && !is_restored, "goes on"),
        (runs && knows_wish && asks_for_b, "recognised"),
        (runs && consent == Some(OWNER), "goes on"),
        (runs && knows_wish && (says_b || tells(100)), "goes on"),
        (runs && is_lost, "held: it runs"),
        (runs && is_restored, "held: it runs since"),
        (is_restored, "goes on"),
        (!past || consent == Some(UNKNOWN), "goes on"),
        (emptied_since && known && !claimed, "goes on"),
        (*recorded == Recorded::Nothing && !known && powered_on == Some(false), "goes on"),
        (true, "held: its past"),
    ];
    lines.into_iter().find(|(fits, _)| *fits).unwrap().1
}

#[test]
fn every_combination_of_record_status_power_and_consent() {
    let mut held = 0;
    for recorded in records() {
        for told in told() {
            for powered_on in POWER {
                for consent in CONSENTS {
                    let facts = Facts { recorded: &recorded, told: told.clone(), powered_on, consent };
                    let what = match found(&facts) {
                        Found::GoOn => "goes on",
                        Found::Recognise(_) => "recognised",
                        Found::Hold(Why::Runs(_)) => "held: it runs",
                        Found::Hold(Why::RunsSince(_)) => "held: it runs since",
                        Found::Hold(Why::Past) => "held: its past",
                    };
                    held += usize::from(what.starts_with("held"));
                    assert_eq!(what, expected(&recorded, &told, powered_on, consent), "{facts:?}");
                }
            }
        }
    }
    assert!(held > 500, "{held}");
}

#[test]
fn ordinary_lives_go_on() {
    let emptied = Recorded::Emptied { ended: Some(at(150)) };
    let lost = |has_past, is_claimed, known_since| Told::Lost { asks_for: "b", has_past, is_claimed, known_since };
    let restored = |second, runs| Told::Restored { provisioning: Some(at(second)), runs };
    let running = Recorded::Runs(runs(100, "b"));
    let lives = [
        // A new host, and one that is declared again after a release.
        (&Recorded::Nothing, lost(false, false, None)),
        (&emptied, lost(false, false, None)),
        // Declared again while its HardwareData is still being collected.
        (&emptied, lost(true, false, Some(at(10)))),
        // Moved, or restored, with the status and the record of one moment; of a later image, which only the status tells of.
        (&running, restored(100, Some("b"))),
        (&running, restored(150, Some("c"))),
        (&running, restored(150, None)),
        // The status of baremetal-operator, moved with a record that is none, or from before.
        (&Recorded::Nothing, restored(100, Some("b"))),
        (&emptied, restored(100, Some("b"))),
        // Whatever is recorded: a server has written this status.
        (&running, Told::Here),
    ];
    for (recorded, told) in lives {
        let facts = Facts { recorded, told, powered_on: Some(true), consent: None };
        assert_eq!(found(&facts), Found::GoOn, "{facts:?}");
    }
}

#[test]
fn consent_names_whole_owners() {
    assert!(names(Some("a, b"), "b") && names(Some(OWNER), OWNER));
    assert!(!names(Some("ab"), "b") && !names(None, "") && !names(Some(UNKNOWN), OWNER));
}

proptest! {
    /// Nobody's system is given away without a word: not by power, nor by another's consent.
    #[test]
    fn a_machine_that_runs_something_else_is_held_whatever_else_is_known(
        began in 0i64..1000, told in proptest::option::of(0i64..1000), asked in "[a-d]", asks in "[a-d]", said in proptest::option::of("[a-d]"),
        power in proptest::option::of(any::<bool>()), past in any::<bool>(), claimed in any::<bool>(), consent in proptest::option::of("[a-z, ]{0,12}"),
    ) {
        let recorded = Recorded::Runs(runs(began, &asked));
        let lost = Told::Lost { asks_for: &asks, has_past: past, is_claimed: claimed, known_since: None };
        let facts = Facts { recorded: &recorded, told: lost, powered_on: power, consent: consent.as_deref() };
        let is_its_own = matches!(found(&facts), Found::Recognise(runs) if runs.owner == OWNER);
        prop_assert_eq!(is_its_own, asks == asked);
        prop_assert!(is_its_own || found(&facts) == Found::Hold(Why::Runs(&runs(began, &asked))));
        let restored = Told::Restored { provisioning: told.map(at), runs: said.as_deref() };
        let facts = Facts { told: restored, ..facts };
        let is_told = said.as_deref() == Some(asked.as_str()) || told.is_some_and(|told| told >= began);
        prop_assert_eq!(found(&facts) == Found::GoOn, is_told);
    }
}

/// Every combination of what a status may tell, beside what the record says.
#[test]
fn a_status_is_behind_that_tells_of_nothing_since_what_the_machine_runs_was_begun() {
    let (before, then, since) = (Some(at(99)), Some(at(100)), Some(at(101)));
    let times = [None, before, then, since];
    for [made, provisioned, emptied, removing] in fours(&times) {
        for asked in [None, Some("a"), Some("b")] {
            let past = Past { made, provisioned, emptied, runs: asked, removing, externally: false };
            let is_the_same = asked == Some("a") && removing != before;
            let tells = provisioned == then || provisioned == since && asked.is_some();
            let is_compared = made == since;
            let expected = !(is_the_same || tells || is_compared || emptied == then || emptied == since);
            let case = format!("{past:?}");
            assert_eq!(is_behind(&past, &runs(100, "a")), expected, "{case}");
            // Others have put it there, nobody knows when: it is theirs for as long as the host says so.
            for wish in [None, Some("a".to_owned())] {
                let others = Runs { wish, owner: OWNER.into() };
                assert!(!is_behind(&past, &others), "{case}");
                assert!(is_behind(&Past { externally: true, ..past }, &others), "{case}");
            }
            assert_eq!(is_behind(&Past { externally: true, ..past }, &runs(100, "a")), expected, "{case}");
        }
    }
    // Times of a status have parts of seconds, those of a wish have none.
    let later = Some(at(100) + jiff::SignedDuration::from_millis(900));
    assert!(!is_behind(&Past { provisioned: later, ..Past::default() }, &runs(100, "a")));
    assert!(is_behind(&Past { provisioned: Some(at(101)), ..Past::default() }, &runs(100, "a")));
}

/// All fours of these times.
fn fours(times: &[Option<Timestamp>; 4]) -> Vec<[Option<Timestamp>; 4]> {
    let mut all = Vec::new();
    for a in times {
        for b in times {
            for c in times {
                all.extend(times.iter().map(|d| [*a, *b, *c, *d]));
            }
        }
    }
    all
}
