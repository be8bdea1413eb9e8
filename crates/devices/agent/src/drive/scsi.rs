//! SCSI: SANITIZE (SBC-4, 5.30).

use inventory::EraseResult;

use super::sense::Sense;
use super::{Data, Drive, Ended, MAX_LOOKS, Pause, SHORT, first};

/// Operation codes.
const REQUEST_SENSE: u8 = 0x03;
const SANITIZE: u8 = 0x48;
const MAINTENANCE_IN: u8 = 0xA3;

/// A service action of SANITIZE (SBC-4, table 89).
#[derive(Clone, Copy)]
enum Action {
    Overwrite = 0x01,
    BlockErase = 0x02,
    CryptoErase = 0x03,
}

impl Action {
    const fn name(self) -> &'static str {
        match self {
            Self::Overwrite => "SCSI SANITIZE (overwrite)",
            Self::BlockErase => "SCSI SANITIZE (block erase)",
            Self::CryptoErase => "SCSI SANITIZE (cryptographic erase)",
        }
    }
}

/// Sends a command, and fails unless it is GOOD.
fn send(drive: &dyn Drive, what: &str, cdb: &[u8], data: Data<'_>) -> Result<(), String> {
    let reply = drive.scsi(cdb, data, SHORT).map_err(|error| format!("{what}: {error}"))?;
    match (reply.status, Sense::read(&reply.sense)) {
        (0, _) => Ok(()),
        (_, Some(sense)) => Err(format!("{what}: refused with {sense}")),
        (status, None) => Err(format!("{what}: refused with the SCSI status {status:02X}h")),
    }
}

/// Whether the drive has this service action, by REPORT SUPPORTED OPERATION CODES (SPC-4, 6.35; reporting options 010b): SUPPORT is 011b.
fn has(drive: &dyn Drive, action: Action) -> Result<bool, String> {
    let mut back = [0; 64];
    let cdb = [MAINTENANCE_IN, 0x0C, 0b010, SANITIZE, 0, action as u8, 0, 0, 0, 64, 0, 0];
    send(drive, "REPORT SUPPORTED OPERATION CODES", &cdb, Data::In(&mut back))?;
    Ok(back[1] & 0b111 == 0b011)
}

/// Erases the drive by the best that it has.
pub fn purge(drive: &dyn Drive, pause: Pause<'_>) -> Ended {
    let mut ways: Vec<Box<dyn FnOnce() -> Ended + '_>> = Vec::new();
    for action in [Action::BlockErase, Action::CryptoErase, Action::Overwrite] {
        match has(drive, action) {
            Ok(true) => ways.push(Box::new(move || sanitize(drive, action, pause))),
            Ok(false) => {}
            Err(why) => return Ended::Refused(format!("it does not say whether it has SANITIZE ({why})")),
        }
    }
    first(ways, "it has no SANITIZE")
}

/// What the drive says of itself (REQUEST SENSE, SPC-4, 6.39).
fn look(drive: &dyn Drive) -> Result<Sense, String> {
    let mut back = [0; 252];
    send(drive, "REQUEST SENSE", &[REQUEST_SENSE, 0, 0, 0, 252, 0], Data::In(&mut back))?;
    Sense::read(&back).ok_or_else(|| "REQUEST SENSE: the answer is no sense data".to_owned())
}

/// LOGICAL UNIT NOT READY, SANITIZE IN PROGRESS.
const IN_PROGRESS: (u8, u8) = (0x04, 0x1B);
/// SANITIZE COMMAND FAILED.
const FAILED: (u8, u8) = (0x31, 0x03);

/// One pass of four zero bytes: the overwrite's parameters (SBC-4, table 91).
const ZEROS: [u8; 8] = [0x01, 0, 0, 4, 0, 0, 0, 0];

fn sanitize(drive: &dyn Drive, action: Action, pause: Pause<'_>) -> Ended {
    let method = action.name();
    // What an earlier agent has begun is awaited, and then this follows.
    if let Ok(sense) = look(drive)
        && sense.code == IN_PROGRESS
        && let Err(ended) = await_end(drive, method, pause)
    {
        return ended;
    }
    let parameters: &[u8] = if matches!(action, Action::Overwrite) { &ZEROS } else { &[] };
    let length = u8::try_from(parameters.len()).unwrap_or(0);
    // IMMED in bit 7: it is answered when it has begun. AUSE in bit 5 stays 0, so a failure is seen.
    let cdb = [SANITIZE, 0x80 | action as u8, 0, 0, 0, 0, 0, 0, length, 0];
    let data = if parameters.is_empty() { Data::None } else { Data::Out(parameters) };
    if let Err(why) = send(drive, method, &cdb, data) {
        return Ended::Refused(why);
    }
    let sense = match await_end(drive, method, pause) {
        Ok(sense) => sense,
        Err(ended) => return ended,
    };
    if sense.code == FAILED {
        let text = format!("{sense}: it has failed, and the drive may refuse all else until one succeeds");
        return Ended::broken(method, text);
    }
    if !matches!(sense.key, 0 | 1) {
        return Ended::broken(method, format!("{sense}"));
    }
    let word = match action {
        Action::CryptoErase => "; that keys are gone is the drive's word alone, no reading proves it",
        _ => "",
    };
    Ended::Done { result: EraseResult::Purged, method: method.to_owned(), evidence: format!("{sense}{word}") }
}

fn await_end(drive: &dyn Drive, method: &str, pause: Pause<'_>) -> Result<Sense, Ended> {
    let mut percent = 0;
    for _ in 0..MAX_LOOKS {
        match look(drive) {
            Ok(sense) if sense.code == IN_PROGRESS => {
                // A drive need not say how far it is.
                percent = sense.percent().unwrap_or(percent);
                if !pause(Some(percent)) {
                    return Err(Ended::broken(method, format!("left while it goes on: {sense}")));
                }
            }
            Ok(sense) => return Ok(sense),
            Err(why) => return Err(Ended::broken(method, format!("how it goes on cannot be read: {why}"))),
        }
    }
    Err(Ended::broken(method, "it has not ended within a week"))
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Exchange, Script};
    use super::*;

    /// REPORT SUPPORTED OPERATION CODES of one service action (SPC-4, 6.35, table 286): SUPPORT in bits 2:0 of byte 1.
    fn support(action: u8, support: u8) -> Exchange {
        let sent = vec![0xA3, 0x0C, 0x02, 0x48, 0, action, 0, 0, 0, 64, 0, 0];
        Exchange { sent, back: vec![0, support, 0, 10], ..Exchange::default() }
    }

    /// REQUEST SENSE with this answer, fixed format.
    fn sense(key: u8, code: (u8, u8), progress: Option<u16>) -> Exchange {
        let mut back = vec![0; 18];
        (back[0], back[2], back[7], back[12], back[13]) = (0x70, key, 10, code.0, code.1);
        if let Some(progress) = progress {
            back[15] = 0x80;
            back[16..].copy_from_slice(&progress.to_be_bytes());
        }
        Exchange { sent: vec![0x03, 0, 0, 0, 252, 0], back, ..Exchange::default() }
    }

    fn sanitize(action: u8, out: &[u8]) -> Exchange {
        let sent = vec![0x48, 0x80 | action, 0, 0, 0, 0, 0, 0, out.len() as u8, 0];
        Exchange { sent, out: out.to_vec(), ..Exchange::default() }
    }

    fn illegal(exchange: Exchange) -> Exchange {
        let mut sense = vec![0; 18];
        (sense[0], sense[2], sense[12]) = (0x70, 5, 0x20);
        Exchange { status: 2, sense, ..exchange }
    }

    fn run(exchanges: Vec<Exchange>) -> Ended {
        purge(&Script::new(exchanges), &|_| true)
    }

    #[test]
    fn a_block_erase_is_begun_and_awaited() {
        let ended = run(vec![
            support(2, 3),
            support(3, 3),
            support(1, 1),
            sense(0, (0, 0), None),
            sanitize(2, &[]),
            sense(2, (0x04, 0x1B), Some(0x8000)),
            sense(0, (0, 0), None),
        ]);
        let method = "SCSI SANITIZE (block erase)".to_owned();
        assert_eq!(ended, Ended::Done { result: EraseResult::Purged, method, evidence: "sense 0/00/00".into() });
    }

    #[test]
    fn an_overwrite_has_its_parameters_and_a_crypto_erase_proves_nothing() {
        let overwrite = vec![
            support(2, 1),
            support(3, 1),
            support(1, 3),
            sense(0, (0, 0), None),
            sanitize(1, &[0x01, 0, 0, 4, 0, 0, 0, 0]),
            sense(0, (0, 0), None),
        ];
        assert!(matches!(run(overwrite), Ended::Done { method, .. } if method.contains("overwrite")));
        let crypto = vec![
            support(2, 1),
            support(3, 3),
            support(1, 1),
            sense(0, (0, 0), None),
            sanitize(3, &[]),
            sense(0, (0, 0), None),
        ];
        assert!(matches!(run(crypto), Ended::Done { evidence, .. } if evidence.contains("no reading proves it")));
    }

    #[test]
    fn a_failure_is_told_and_nothing_follows_it() {
        for (key, code) in [(3, (0x31, 0x03)), (2, (0x04, 0x02)), (4, (0x44, 0x00))] {
            let all = vec![
                support(2, 3),
                support(3, 3),
                support(1, 3),
                sense(0, (0, 0), None),
                sanitize(2, &[]),
                sense(key, code, None),
            ];
            assert!(matches!(run(all), Ended::Broken { .. }), "{key:x} {code:?}");
        }
    }

    #[test]
    fn one_that_an_earlier_agent_has_begun_is_awaited_first() {
        let all = vec![
            support(2, 3),
            support(3, 1),
            support(1, 1),
            sense(2, (0x04, 0x1B), Some(1)),
            sense(2, (0x04, 0x1B), Some(2)),
            sense(0, (0, 0), None),
            sanitize(2, &[]),
            sense(0, (0, 0), None),
        ];
        assert!(matches!(run(all), Ended::Done { .. }));
    }

    #[test]
    fn a_drive_that_does_not_say_how_far_it_is_is_asked_no_faster() {
        let all = vec![
            support(2, 3),
            support(3, 1),
            support(1, 1),
            sense(0, (0, 0), None),
            sanitize(2, &[]),
            sense(2, (0x04, 0x1B), None),
            sense(2, (0x04, 0x1B), Some(0x8000)),
            sense(2, (0x04, 0x1B), None),
            sense(0, (0, 0), None),
        ];
        let pauses = std::cell::RefCell::new(Vec::new());
        let pause = |percent| {
            pauses.borrow_mut().push(percent);
            true
        };
        assert!(matches!(purge(&Script::new(all), &pause), Ended::Done { .. }));
        assert_eq!(pauses.take(), [Some(0), Some(50), Some(50)]);
    }

    #[test]
    fn a_drive_that_has_none_or_does_not_know_is_left() {
        assert!(
            matches!(run(vec![support(2, 1), support(3, 1), support(1, 0)]), Ended::Refused(why) if why.contains("no SANITIZE"))
        );
        assert!(matches!(run(vec![illegal(support(2, 0))]), Ended::Refused(why) if why.contains("5/20/00")));
        let all = vec![support(2, 3), support(3, 1), support(1, 1), sense(0, (0, 0), None), illegal(sanitize(2, &[]))];
        assert!(matches!(run(all), Ended::Refused(why) if why.contains("5/20/00")));
    }
}
