//! Why a booted agent has not reported.

use provisioning_plan::silence::{Boot, LOOKED_INTO, Sight, Silence};

#[test]
fn each_silence_has_its_cause() {
    let tells = [None, Some(false), Some(true)];
    let mut sights = vec![None];
    for has_medium in tells {
        for powered_on in tells {
            sights.extend(tells.map(|override_ahead| Some(Sight { has_medium, powered_on, override_ahead })));
        }
    }
    assert_eq!(sights.len(), 28);
    for sight in sights {
        for read in [0, 1, LOOKED_INTO - 1, LOOKED_INTO] {
            for forgotten in [false, true] {
                let unseen = if read == 0 { Silence::NeverRead } else { Silence::LookedInto };
                let shows = |of: fn(&Sight) -> Option<bool>, what| sight.is_some_and(|s| of(&s) == Some(what));
                let rules = [
                    (read == LOOKED_INTO, Silence::ReadAndSilent),
                    (shows(|s| s.has_medium, false), Silence::Ejected),
                    (shows(|s| s.powered_on, false), Silence::Off),
                    (shows(|s| s.override_ahead, true), Silence::ResetIgnored),
                    (sight.is_some() && forgotten, Silence::OverrideForgotten),
                    (true, unseen),
                ];
                let expected = rules.into_iter().find(|(holds, _)| *holds).unwrap().1;
                assert_eq!(Silence::of(sight, read, forgotten), expected, "{sight:?} {read} {forgotten}");
            }
        }
    }
}

#[test]
fn each_cause_is_told_in_words_of_its_own() {
    for (silence, word) in [
        (Silence::Ejected, "no longer in the BMC's drive"),
        (Silence::Off, "is off"),
        (Silence::ResetIgnored, "has not restarted"),
        (Silence::OverrideForgotten, "did not keep it"),
        (Silence::NeverRead, "nothing has read the medium"),
        (Silence::LookedInto, "looked into the medium"),
        (Silence::ReadAndSilent, "has read its system"),
    ] {
        assert!(silence.found().contains(word), "{silence:?}: {}", silence.found());
    }
}

#[test]
fn a_boot_is_asked_for_once_more_where_it_cannot_have_come_about() {
    assert_eq!(LOOKED_INTO, 1 << 20);
    let boot = Boot { read: LOOKED_INTO - 1, current: true, again: false, seen: false, medium: true };
    assert!(boot.once_more());
    for other in [
        Boot { read: LOOKED_INTO, ..boot },
        Boot { current: false, ..boot },
        Boot { again: true, ..boot },
        Boot { seen: true, ..boot },
        Boot { medium: false, ..boot },
    ] {
        assert!(!other.once_more(), "{other:?}");
    }
}
