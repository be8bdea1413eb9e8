//! NVMe: Sanitize and Format NVM.
//!
//! Both are the controller's: what one of them does to other namespaces than the one that it is given stands in Identify Controller, so a controller is
//! erased once, with all its namespaces, or not at all.

use std::time::Duration;

use inventory::EraseResult;

use super::sense::percent;
use super::{Data, Drive, Ended, MAX_LOOKS, Pause, SHORT, first, le16, le32};

/// Opcodes of the admin command set (NVMe 2.0, figure 138).
const GET_LOG_PAGE: u8 = 0x02;
const IDENTIFY: u8 = 0x06;
const FORMAT_NVM: u8 = 0x80;
const SANITIZE: u8 = 0x84;

/// All namespaces.
const ALL: u32 = 0xFFFF_FFFF;
/// Log page Sanitize Status (5.16.1.24).
const SANITIZE_STATUS: u32 = 0x81;
/// Longest Format: it is answered when it is done.
const FORMAT_TIME: Duration = Duration::from_secs(4 * 3600);
/// Most namespaces of a list (figure 276: 1024 entries).
const MOST: usize = 1024;

/// What Identify Controller says (5.17.2.1, figure 275).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Controller {
    /// OACS bit 1: Format NVM.
    formats: bool,
    /// OACS bit 3: there may be namespaces that are attached to no controller, or to another one.
    manages: bool,
    /// FNA bit 1: a secure erase is of all namespaces.
    erases_all: bool,
    /// FNA bit 2: Format erases cryptographically.
    formats_crypto: bool,
    /// FNA bit 3: Format does not take the number of all namespaces.
    no_broadcast: bool,
    /// SANICAP bits 0 to 2: crypto erase, block erase, overwrite.
    sanitizes: u32,
}

/// A submission queue entry (3.3.3.1): opcode in byte 0, namespace in bytes 4 to 7, dwords 10 and 11 from byte 40.
fn entry(opcode: u8, namespace: u32, dword10: u32, dword11: u32) -> [u8; 64] {
    let mut entry = [0; 64];
    entry[0] = opcode;
    entry[4..8].copy_from_slice(&namespace.to_le_bytes());
    entry[40..44].copy_from_slice(&dword10.to_le_bytes());
    entry[44..48].copy_from_slice(&dword11.to_le_bytes());
    entry
}

/// Sends a command that only asks or begins.
fn send(drive: &dyn Drive, what: &str, entry: &[u8; 64], data: Data<'_>, time: Duration) -> Result<(), String> {
    let answer = drive.nvme(entry, data, time).map_err(|error| format!("{what}: {error}"))?;
    // Bits 10:8 are the status code's type, bits 7:0 the code (3.3.3.2.1).
    match answer.status & 0x7FF {
        0 => Ok(()),
        status => {
            Err(format!("{what}: the controller refused it with status {:X}h/{:02X}h", status >> 8, status & 0xFF))
        }
    }
}

fn identify(drive: &dyn Drive, namespace: u32, cns: u32) -> Result<Vec<u8>, String> {
    let mut data = vec![0; 4096];
    send(drive, "Identify", &entry(IDENTIFY, namespace, cns, 0), Data::In(&mut data), SHORT)?;
    Ok(data)
}

fn controller(drive: &dyn Drive) -> Result<Controller, String> {
    let data = identify(drive, 0, 0x01)?;
    let (oacs, fna) = (le16(&data, 256), data[524]);
    Ok(Controller {
        formats: oacs & 1 << 1 != 0,
        manages: oacs & 1 << 3 != 0,
        erases_all: fna & 1 << 1 != 0,
        formats_crypto: fna & 1 << 2 != 0,
        no_broadcast: fna & 1 << 3 != 0,
        sanitizes: le32(&data, 328),
    })
}

/// The namespaces that there are (CNS 10h where they are managed, else the active ones, CNS 02h).
fn namespaces(drive: &dyn Drive, controller: &Controller) -> Result<Vec<u32>, String> {
    let list = identify(drive, 0, if controller.manages { 0x10 } else { 0x02 })?;
    let numbers = (0..MOST).map(|at| le32(&list, 4 * at));
    Ok(numbers.take_while(|number| *number != 0).collect())
}

/// Erases the controller that this drive belongs to, by the best that it has. `meant` are the numbers of its namespaces that are to be erased: it is left as
/// it is if a command would erase others.
pub fn purge(drive: &dyn Drive, meant: &[u32], pause: Pause<'_>) -> Ended {
    let found = match controller(drive).and_then(|found| Ok((namespaces(drive, &found)?, found))) {
        Ok(found) => found,
        Err(why) => return Ended::Refused(why),
    };
    let (there, controller) = found;
    let others: Vec<String> = there.iter().filter(|number| !meant.contains(number)).map(ToString::to_string).collect();
    if !others.is_empty() && (controller.sanitizes & 0b111 != 0 || controller.erases_all) {
        let text = format!(
            "its controller erases all namespaces at once, and namespace {} is not to be erased, or not attached here; erase them together, or delete those that nobody needs",
            others.join(", ")
        );
        return Ended::Refused(text);
    }
    let mut ways: Vec<Box<dyn FnOnce() -> Ended + '_>> = Vec::new();
    // Block erase and overwrite reach what is in no namespace; a crypto erase proves itself by nothing that can be read.
    for (bit, action, name) in [(1, 2, "block erase"), (0, 4, "crypto erase"), (2, 3, "overwrite")] {
        if controller.sanitizes & 1 << bit != 0 {
            ways.push(Box::new(move || sanitize(drive, action, name, pause)));
        }
    }
    if controller.formats {
        let secure: &[(u32, &str, EraseResult)] = if controller.formats_crypto {
            &[(2, "crypto erase", EraseResult::Purged), (1, "user data erase", EraseResult::Cleared)]
        } else {
            &[(1, "user data erase", EraseResult::Cleared)]
        };
        for (setting, name, result) in secure.iter().copied() {
            let meant = meant.to_vec();
            ways.push(Box::new(move || format(drive, &controller, &meant, (setting, name, result))));
        }
    }
    first(ways, "its controller has neither Sanitize nor Format NVM")
}

/// The Sanitize Status log page (5.16.1.24, figure 292): progress, status, and the dword 10 of the last Sanitize.
struct Status {
    progress: u16,
    status: u16,
    dword10: u32,
}

impl Status {
    fn read(drive: &dyn Drive) -> Result<Self, String> {
        let mut page = vec![0; 512];
        // NUMDL in bits 31:16, in dwords, from 0 (5.16, figure 199)
        let command = entry(GET_LOG_PAGE, ALL, SANITIZE_STATUS | (512 / 4 - 1) << 16, 0);
        send(drive, "Get Log Page 81h", &command, Data::In(&mut page), SHORT)?;
        Ok(Self { progress: le16(&page, 0), status: le16(&page, 2), dword10: le32(&page, 4) })
    }

    /// Status of the most recent sanitize operation, bits 2:0.
    const fn state(&self) -> u16 {
        self.status & 0b111
    }
}

impl std::fmt::Display for Status {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SSTAT {:04X}h, SPROG {:04X}h, SCDW10 {:08X}h", self.status, self.progress, self.dword10)
    }
}

/// Sanitize (5.24): action in bits 2:0 of dword 10, one pass of overwriting in bits 7:4; AUSE stays 0, so a failure is seen.
fn sanitize(drive: &dyn Drive, action: u32, name: &str, pause: Pause<'_>) -> Ended {
    let method = format!("NVMe Sanitize ({name})");
    let passes = if action == 3 { 1 << 4 } else { 0 };
    // One that an earlier agent has begun goes on whatever happens to the machine: it is waited for, and then this one follows.
    match Status::read(drive) {
        Ok(status) if status.state() == 2 => {
            if let Err(ended) = await_end(drive, &method, pause) {
                return ended;
            }
        }
        Ok(_) => {}
        Err(why) => return Ended::Refused(why),
    }
    if let Err(why) = send(drive, &method, &entry(SANITIZE, 0, action | passes, 0), Data::None, SHORT) {
        return Ended::Refused(why);
    }
    let status = match await_end(drive, &method, pause) {
        Ok(status) => status,
        Err(ended) => return ended,
    };
    // 1: completed; 4: completed, with all deallocated though that was not asked for. Both only of this very action.
    if matches!(status.state(), 1 | 4) && status.dword10 & 0b111 == action {
        let evidence = match action {
            4 => format!("{status}; that keys are gone is the controller's word alone, no reading proves it"),
            _ => status.to_string(),
        };
        return Ended::Done { result: EraseResult::Purged, method, evidence };
    }
    let advice =
        if status.state() == 3 { ": it has failed, and the drive may refuse all else until one succeeds" } else { "" };
    Ended::broken(&method, format!("{status}{advice}"))
}

/// Waits until no sanitize operation is in progress.
fn await_end(drive: &dyn Drive, method: &str, pause: Pause<'_>) -> Result<Status, Ended> {
    for _ in 0..MAX_LOOKS {
        match Status::read(drive) {
            Ok(status) if status.state() == 2 => {
                if !pause(Some(percent(status.progress))) {
                    return Err(Ended::broken(method, format!("left while it goes on: {status}")));
                }
            }
            Ok(status) => return Ok(status),
            Err(why) => return Err(Ended::broken(method, format!("how it goes on cannot be read: {why}"))),
        }
    }
    Err(Ended::broken(method, "it has not ended within a week"))
}

/// Format NVM (5.14) of these namespaces, with the format that each has (NVM Command Set 1.0, 4.1.5.1: FLBAS in byte 26, DPS in byte 29) and this secure
/// erase setting in bits 11:9 of dword 10.
fn format(drive: &dyn Drive, controller: &Controller, meant: &[u32], how: (u32, &str, EraseResult)) -> Ended {
    let (setting, name, result) = how;
    let method = format!("NVMe Format ({name})");
    let once = controller.erases_all && !controller.no_broadcast;
    let targets: Vec<(u32, u32)> = match meant.first() {
        None => return Ended::Refused("it has no namespace".to_owned()),
        Some(one) if once => vec![(*one, ALL)],
        Some(one) if controller.erases_all => vec![(*one, *one)],
        Some(_) => meant.iter().map(|number| (*number, *number)).collect(),
    };
    let mut done = 0;
    for (shown, target) in targets {
        let formatted = identify(drive, shown, 0x00).and_then(|namespace| {
            let (flbas, dps) = (u32::from(namespace[26]), u32::from(namespace[29]));
            // LBAFL 3:0, MSET 4, PI 7:5, PIL 8, SES 11:9, LBAFU 13:12; PIL is 1 where DPS bit 3 is
            let dword10 =
                flbas & 0x1F | (dps & 0b111) << 5 | (dps >> 3 & 1) << 8 | setting << 9 | (flbas >> 5 & 0b11) << 12;
            send(drive, &method, &entry(FORMAT_NVM, target, dword10, 0), Data::None, FORMAT_TIME)
        });
        match formatted {
            Ok(()) => done += 1,
            Err(why) if done == 0 => return Ended::Refused(why),
            Err(why) => return Ended::broken(&method, format!("{done} namespaces were formatted, then: {why}")),
        }
    }
    let scope = if once || controller.erases_all {
        "all namespaces at once".to_owned()
    } else {
        format!("namespaces formatted: {done}")
    };
    let worth = match result {
        EraseResult::Purged => "that keys are gone is the controller's word alone, no reading proves it",
        _ => "what is in no namespace (spare area, replaced blocks) is not promised to be erased",
    };
    Ended::Done { result, method, evidence: format!("status 0, {scope}; {worth}") }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Exchange, Script};
    use super::*;
    use std::cell::Cell;

    /// Identify Controller with OACS (bytes 257:256), SANICAP (331:328) and FNA (524); NVMe 2.0, figure 275.
    fn controller(oacs: u16, sanicap: u32, fna: u8) -> Exchange {
        let mut back = vec![0; 4096];
        back[256..258].copy_from_slice(&oacs.to_le_bytes());
        back[328..332].copy_from_slice(&sanicap.to_le_bytes());
        back[524] = fna;
        // opcode 06h; dword 10 is CNS 01h (5.17, figure 272)
        let mut sent = vec![0; 41];
        (sent[0], sent[40]) = (0x06, 0x01);
        Exchange { sent, back, ..Exchange::default() }
    }

    /// A list of namespaces by this CNS (5.17.2.2 and 5.17.2.15).
    fn list(cns: u8, numbers: &[u32]) -> Exchange {
        let mut sent = vec![0; 41];
        (sent[0], sent[40]) = (0x06, cns);
        Exchange { sent, back: numbers.iter().flat_map(|n| n.to_le_bytes()).collect(), ..Exchange::default() }
    }

    /// Identify Namespace: FLBAS in byte 26, DPS in byte 29.
    fn namespace(number: u8, flbas: u8, dps: u8) -> Exchange {
        let mut sent = vec![0; 41];
        (sent[0], sent[4]) = (0x06, number);
        let mut back = vec![0; 4096];
        (back[26], back[29]) = (flbas, dps);
        Exchange { sent, back, ..Exchange::default() }
    }

    /// Get Log Page 81h: NUMDL 7Fh (127) in bits 31:16 of dword 10, all namespaces (5.16, figure 199; 5.16.1.24, figure 292).
    fn log(sprog: u16, sstat: u16, scdw10: u32) -> Exchange {
        let mut sent = vec![0x02, 0, 0, 0, 0xFF, 0xFF, 0xFF, 0xFF];
        sent.resize(40, 0);
        sent.extend([0x81, 0x00, 0x7F, 0x00]);
        let back = [&sprog.to_le_bytes()[..], &sstat.to_le_bytes(), &scdw10.to_le_bytes()].concat();
        Exchange { sent, back, ..Exchange::default() }
    }

    /// Sanitize with this dword 10 (5.24, figure 334).
    fn sanitize(dword10: u8, status: u16) -> Exchange {
        let mut sent = vec![0; 41];
        (sent[0], sent[40]) = (0x84, dword10);
        Exchange { sent, status, ..Exchange::default() }
    }

    /// Format NVM of this namespace with this dword 10 (5.14, figure 189).
    fn format(namespace: u32, dword10: u16, status: u16) -> Exchange {
        let mut sent = vec![0x80, 0, 0, 0];
        sent.extend(namespace.to_le_bytes());
        sent.resize(40, 0);
        sent.extend(dword10.to_le_bytes());
        Exchange { sent, status, time: Some(FORMAT_TIME), ..Exchange::default() }
    }

    fn run(exchanges: Vec<Exchange>, meant: &[u32]) -> Ended {
        purge(&Script::new(exchanges), meant, &|_| true)
    }

    fn done(ended: &Ended) -> (EraseResult, &str, &str) {
        match ended {
            Ended::Done { result, method, evidence } => (*result, method, evidence),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_block_erase_is_begun_once_and_awaited() {
        let percents = Cell::new(Vec::new());
        let drive = Script::new(vec![
            controller(0x06, 0b011, 0),
            list(0x02, &[1]),
            log(0xFFFF, 0x0000, 0),
            sanitize(0x02, 0),
            log(0x4000, 0x0002, 2),
            log(0xC000, 0x0002, 2),
            log(0xFFFF, 0x0101, 2),
        ]);
        let ended = purge(&drive, &[1], &|percent| {
            percents.set([percents.take(), vec![percent]].concat());
            true
        });
        assert_eq!(
            done(&ended),
            (EraseResult::Purged, "NVMe Sanitize (block erase)", "SSTAT 0101h, SPROG FFFFh, SCDW10 00000002h")
        );
        assert_eq!(percents.take(), [Some(25), Some(75)]);
    }

    #[test]
    fn one_that_an_earlier_agent_has_begun_is_awaited_first() {
        let exchanges = vec![
            controller(0, 0b010, 0),
            list(0x02, &[1]),
            log(0x8000, 0x0002, 2),
            log(0x9000, 0x0002, 2),
            log(0xFFFF, 0x0001, 2),
            sanitize(0x02, 0),
            log(0xFFFF, 0x0001, 2),
        ];
        assert_eq!(done(&run(exchanges, &[1])).0, EraseResult::Purged);
    }

    #[test]
    fn an_overwrite_is_of_one_pass_and_a_crypto_erase_proves_nothing() {
        let overwrite =
            vec![controller(0, 0b100, 0), list(0x02, &[1]), log(0, 0, 0), sanitize(0x13, 0), log(0xFFFF, 0x0009, 0x13)];
        assert_eq!(done(&run(overwrite, &[1])).1, "NVMe Sanitize (overwrite)");
        let crypto =
            vec![controller(0, 0b001, 0), list(0x02, &[1]), log(0, 0, 0), sanitize(0x04, 0), log(0xFFFF, 0x0001, 4)];
        let crypto = run(crypto, &[1]);
        assert!(done(&crypto).2.contains("no reading proves it"), "{crypto:?}");
    }

    #[test]
    fn a_sanitize_that_fails_is_no_success_and_nothing_follows_it() {
        // Status 3: the most recent sanitize operation failed. Another action's success is none either.
        for (status, dword10) in [(0x0003, 2), (0x0000, 0), (0x0001, 4)] {
            let exchanges = vec![
                controller(0x02, 0b110, 0b100),
                list(0x02, &[1]),
                log(0, 0, 0),
                sanitize(0x02, 0),
                log(0xFFFF, status, dword10),
            ];
            assert!(matches!(run(exchanges, &[1]), Ended::Broken { .. }), "{status:04x}");
        }
    }

    #[test]
    fn what_is_refused_is_followed_by_the_next_best() {
        // 1Dh: Sanitize in progress elsewhere; 02h: invalid field; 0Ch: command sequence error (figure 99)
        let exchanges = vec![
            controller(0x02, 0b011, 0b000),
            list(0x02, &[1]),
            log(0, 0, 0),
            sanitize(0x02, 0x0002),
            log(0, 0, 0),
            sanitize(0x04, 0x4002),
            namespace(1, 0, 0),
            format(1, 1 << 9, 0),
        ];
        let ended = run(exchanges, &[1]);
        let (result, method, evidence) = done(&ended);
        assert_eq!((result, method), (EraseResult::Cleared, "NVMe Format (user data erase)"));
        assert!(evidence.contains("spare area") && evidence.contains("0h/02h"), "{evidence}");
    }

    #[test]
    fn format_keeps_each_namespaces_format() {
        // FLBAS: format 1 with bit 4 (metadata at the end), upper bits 01b; DPS: type 1, first eight bytes
        let exchanges = vec![
            controller(0x02, 0, 0b100),
            list(0x02, &[1, 2]),
            namespace(1, 0x31, 0b1001),
            format(1, 0x11 | 1 << 5 | 1 << 8 | 2 << 9 | 1 << 12, 0),
            namespace(2, 0, 0),
            format(2, 2 << 9, 0),
        ];
        let ended = run(exchanges, &[1, 2]);
        assert_eq!(done(&ended).0, EraseResult::Purged);
        assert!(done(&ended).2.contains("namespaces formatted: 2"), "{ended:?}");
    }

    #[test]
    fn where_a_format_erases_all_namespaces_it_is_given_once() {
        let all =
            vec![controller(0x02, 0, 0b010), list(0x02, &[1, 2]), namespace(1, 0, 0), format(0xFFFF_FFFF, 1 << 9, 0)];
        assert!(done(&run(all, &[1, 2])).2.contains("all namespaces at once"));
        let one = vec![controller(0x02, 0, 0b1010), list(0x02, &[1, 2]), namespace(1, 0, 0), format(1, 1 << 9, 0)];
        assert_eq!(done(&run(one, &[1, 2])).0, EraseResult::Cleared);
    }

    #[test]
    fn namespaces_that_are_not_meant_are_not_erased_with_others() {
        for (sanicap, fna) in [(0b010, 0), (0, 0b010)] {
            let exchanges = vec![controller(0x02, sanicap, fna), list(0x02, &[1, 2])];
            assert!(matches!(run(exchanges, &[1]), Ended::Refused(why) if why.contains("namespace 2")));
        }
        // One that is attached to no controller, or to another machine's, is listed by CNS 10h alone.
        let exchanges = vec![controller(0x0A, 0b010, 0), list(0x10, &[1, 7])];
        assert!(matches!(run(exchanges, &[1]), Ended::Refused(why) if why.contains("namespace 7")));
        // A format of one namespace leaves the others.
        let exchanges = vec![controller(0x02, 0, 0), list(0x02, &[1, 2]), namespace(2, 0, 0), format(2, 1 << 9, 0)];
        assert_eq!(done(&run(exchanges, &[2])).0, EraseResult::Cleared);
    }

    #[test]
    fn a_controller_without_either_is_left() {
        assert!(
            matches!(run(vec![controller(0, 0, 0), list(0x02, &[1])], &[1]), Ended::Refused(why) if why.contains("neither"))
        );
        let silent = Exchange { silent: true, ..controller(0, 0, 0) };
        assert!(matches!(run(vec![silent], &[1]), Ended::Refused(_)));
    }

    #[test]
    fn a_format_that_breaks_off_in_the_middle_says_so() {
        let exchanges = vec![
            controller(0x02, 0, 0),
            list(0x02, &[1, 2]),
            namespace(1, 0, 0),
            format(1, 1 << 9, 0),
            namespace(2, 0, 0),
            format(2, 1 << 9, 0x0106),
        ];
        assert!(matches!(run(exchanges, &[1, 2]), Ended::Broken { why, .. } if why.starts_with("1 namespaces")));
    }

    #[test]
    fn a_drive_that_is_to_be_left_is_not_asked_again() {
        let exchanges =
            vec![controller(0, 0b010, 0), list(0x02, &[1]), log(0, 0, 0), sanitize(0x02, 0), log(0x4000, 0x0002, 2)];
        let ended = purge(&Script::new(exchanges), &[1], &|_| false);
        assert!(matches!(ended, Ended::Broken { why, .. } if why.contains("goes on")));
    }
}
