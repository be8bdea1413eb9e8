//! ATA: SANITIZE DEVICE and SECURITY ERASE UNIT, through SCSI (ATA PASS-THROUGH (16), SAT-4, 12.2.3).
//!
//! SECURITY ERASE UNIT needs a password to be set. If the power fails between setting it and the end, the drive is left locked: therefore the password is
//! the server's, recorded before the agent gets it, and [`unlock`] is the first thing that the next agent does. A drive that somebody else has locked is
//! not unlocked. Firmware freezes the security feature at the start, so that no software locks drives up; SANITIZE DEVICE has a freeze of its own, which
//! few use.

use std::time::Duration;

use inventory::EraseResult;

use super::sense::{Sense, descriptor, percent};
use super::{Data, Drive, Ended, MAX_LOOKS, Pause, SHORT, first, le16};

/// Commands (ACS-4, 7).
const IDENTIFY_DEVICE: u8 = 0xEC;
const SANITIZE_DEVICE: u8 = 0xB4;
const SECURITY_SET_PASSWORD: u8 = 0xF1;
const SECURITY_UNLOCK: u8 = 0xF2;
const SECURITY_ERASE_PREPARE: u8 = 0xF3;
const SECURITY_ERASE_UNIT: u8 = 0xF4;
const SECURITY_DISABLE_PASSWORD: u8 = 0xF6;

/// How long an erase may take beyond what the drive says, and where it says nothing.
const MORE_TIME: Duration = Duration::from_secs(3600);
const UNTOLD: Duration = Duration::from_secs(48 * 3600);
/// Length of a password, bytes (ACS-4, 7.42: words 1 to 16).
pub const PASSWORD: usize = 32;

/// What is moved by a command, in 512-byte blocks of the count field (SAT-4, table 203).
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    /// Protocol 3; the registers are asked for (CK_COND).
    Nothing,
    /// Protocol 4.
    In,
    /// Protocol 5.
    Out,
}

/// A command's registers.
#[derive(Clone, Copy, Default)]
struct Registers {
    features: u16,
    count: u16,
    lba: u64,
    command: u8,
}

/// The command descriptor block: 48-bit registers, each with its high byte before its low one.
fn cdb(registers: Registers, moves: Moves, extended: bool) -> [u8; 16] {
    let (protocol, flags) = match moves {
        Moves::Nothing => (3, 0x20),
        // T_DIR from the drive, BYT_BLOK, the length is in the count field
        Moves::In => (4, 0x0E),
        Moves::Out => (5, 0x06),
    };
    let [features, count] = [registers.features, registers.count].map(u16::to_be_bytes);
    let lba = registers.lba.to_le_bytes();
    [
        0x85,
        protocol << 1 | u8::from(extended),
        flags,
        features[0],
        features[1],
        count[0],
        count[1],
        lba[3],
        lba[0],
        lba[4],
        lba[1],
        lba[5],
        lba[2],
        0,
        registers.command,
        0,
    ]
}

/// Registers that an ATA Status Return descriptor shows (SAT-4, 12.2.5; type 09h).
struct Shown {
    error: u8,
    count: u16,
    lba: u64,
    status: u8,
}

impl Shown {
    /// Only sense data of the descriptor format has descriptors.
    fn read(sense: &[u8]) -> Option<Self> {
        if !matches!(sense.first()? & 0x7F, 0x72 | 0x73) {
            return None;
        }
        let at = descriptor(sense, 0x09)?;
        let byte = |offset: usize| sense.get(at + offset).copied().unwrap_or(0);
        let lba = [byte(7), byte(9), byte(11), byte(6), byte(8), byte(10), 0, 0];
        Some(Self {
            error: byte(3),
            count: u16::from_be_bytes([byte(4), byte(5)]),
            lba: u64::from_le_bytes(lba),
            status: byte(13),
        })
    }

    /// Bit 0 of the status is ERROR, bit 5 DEVICE FAULT (ACS-4, 6.2).
    const fn is_fault(&self) -> bool {
        self.status & 0x21 != 0
    }
}

/// Sends a command and fails unless the drive has carried it out.
fn send(drive: &dyn Drive, what: &str, cdb: [u8; 16], data: Data<'_>, time: Duration) -> Result<Option<Shown>, String> {
    let reads = matches!(data, Data::In(_));
    let reply = drive.scsi(&cdb, data, time).map_err(|error| format!("{what}: {error}"))?;
    let shown = Shown::read(&reply.sense);
    if let Some(shown) = shown.as_ref().filter(|shown| shown.is_fault()) {
        return Err(format!("{what}: the drive aborted it (status {:02X}h, error {:02X}h)", shown.status, shown.error));
    }
    match (reply.status, Sense::read(&reply.sense)) {
        // CK_COND brings the registers with RECOVERED ERROR, ATA PASS-THROUGH INFORMATION AVAILABLE (01h/00h/1Dh)
        (2, Some(Sense { key: 1, code: (0x00, 0x1D), .. })) | (0, _) if reads && reply.missing > 0 => {
            Err(format!("{what}: {} bytes of the answer are missing", reply.missing))
        }
        (2, Some(Sense { key: 1, code: (0x00, 0x1D), .. })) => Ok(shown),
        (0, _) => Ok(shown),
        (_, Some(sense)) => Err(format!("{what}: refused with {sense}")),
        (status, None) => Err(format!("{what}: refused with the SCSI status {status:02X}h")),
    }
}

/// What IDENTIFY DEVICE says (ACS-4, 7.13.6).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Identity {
    /// Word 59: what SANITIZE DEVICE has.
    sanitize: u16,
    /// Word 82 bit 1: the security feature set is there.
    has_security: bool,
    /// Words 89 and 90: time of an erase, normal and enhanced.
    times: [u16; 2],
    /// Word 128: security status.
    security: u16,
    /// Word 217, the nominal media rotation rate: 1 where nothing rotates, 0401h to FFFEh revolutions per minute, 0 where it is not told.
    rotation: u16,
}

impl Identity {
    fn read(drive: &dyn Drive) -> Result<Self, String> {
        let mut data = vec![0; 512];
        let registers = Registers { count: 1, command: IDENTIFY_DEVICE, ..Registers::default() };
        send(drive, "IDENTIFY DEVICE", cdb(registers, Moves::In, false), Data::In(&mut data), SHORT)?;
        let word = |number: usize| le16(&data, 2 * number);
        // Word 128 is the security status as words 82 and 85 are, with more in it.
        Ok(Self {
            sanitize: word(59),
            has_security: word(82) & 1 << 1 != 0,
            times: [word(89), word(90)],
            security: word(128),
            rotation: word(217),
        })
    }

    const fn is(&self, bit: u16) -> bool {
        self.security & 1 << bit != 0
    }
    const fn is_enabled(&self) -> bool {
        self.is(1)
    }
    const fn is_locked(&self) -> bool {
        self.is(2)
    }
    const fn is_frozen(&self) -> bool {
        self.is(3)
    }
    /// No more attempts to unlock it until it is power-cycled.
    const fn is_exhausted(&self) -> bool {
        self.is(4)
    }
    const fn has_enhanced(&self) -> bool {
        self.is(5)
    }
    const fn rotates(&self) -> bool {
        matches!(self.rotation, 0x0401..=0xFFFE)
    }

    /// How long an erase is waited for: in units of two minutes, in bits 14:0 if bit 15 is set, else in bits 7:0; its largest value is "or more".
    fn time(&self, enhanced: bool) -> Duration {
        let told = self.times[usize::from(enhanced)];
        let (units, most) = if told & 0x8000 == 0 { (told & 0xFF, 0xFF) } else { (told & 0x7FFF, 0x7FFF) };
        if units == 0 || units == most { UNTOLD } else { Duration::from_secs(120 * u64::from(units)) + MORE_TIME }
    }
}

/// The block of a security command (ACS-4, 7.40 and 7.42): bit 0 of word 0 is 0 for the user's password; the password is in words 1 to 16.
fn block(password: &[u8], word_0: u16) -> Vec<u8> {
    let mut block = vec![0; 512];
    block[..2].copy_from_slice(&word_0.to_le_bytes());
    let length = password.len().min(PASSWORD);
    block[2..2 + length].copy_from_slice(&password[..length]);
    block
}

fn secure(drive: &dyn Drive, what: &str, command: u8, block: &[u8], time: Duration) -> Result<(), String> {
    let registers = Registers { count: 1, command, ..Registers::default() };
    send(drive, what, cdb(registers, Moves::Out, false), Data::Out(block), time).map(|_| ())
}

/// What is known of a lock.
#[derive(Debug, PartialEq, Eq)]
pub enum Lock {
    /// It is not locked, or is no ATA drive.
    Open,
    /// It was locked by this password: an erase was broken off. It is open now, and has no password any more.
    Opened,
    /// It stays locked, or its password stays: why.
    Shut(String),
}

/// Opens a drive that an earlier erase has left locked.
pub fn unlock(drive: &dyn Drive, password: &[u8]) -> Lock {
    let Ok(identity) = Identity::read(drive) else { return Lock::Open };
    if !identity.is_enabled() {
        return Lock::Open;
    }
    let locked = identity.is_locked();
    if !locked {
        // It may be somebody's who has unlocked it since: it is only tried whether it is ours.
        return match disable(drive, password) {
            Ok(()) => Lock::Opened,
            Err(_) => Lock::Open,
        };
    }
    if identity.is_exhausted() || identity.is_frozen() {
        let text = "it is locked by a password, and takes no attempt to unlock it until it has been without power; switch the machine off and on, and try again";
        return Lock::Shut(text.to_owned());
    }
    if let Err(why) = secure(drive, "SECURITY UNLOCK", SECURITY_UNLOCK, &block(password, 0), SHORT) {
        return Lock::Shut(format!(
            "it is locked by a password that is not the one recorded for this host ({why}); have whoever has set it unlock it, or erase it with its PSID or master password"
        ));
    }
    match disable(drive, password) {
        Ok(()) => Lock::Opened,
        Err(why) => Lock::Shut(format!("it was unlocked, and its password cannot be taken away: {why}")),
    }
}

fn disable(drive: &dyn Drive, password: &[u8]) -> Result<(), String> {
    secure(drive, "SECURITY DISABLE PASSWORD", SECURITY_DISABLE_PASSWORD, &block(password, 0), SHORT)
}

/// Erases the drive by the best that it has.
pub fn purge(drive: &dyn Drive, password: &[u8], pause: Pause<'_>) -> Ended {
    let identity = match Identity::read(drive) {
        Ok(identity) => identity,
        Err(why) => return Ended::Refused(why),
    };
    let mut ways: Vec<Box<dyn FnOnce() -> Ended + '_>> = Vec::new();
    // Word 59: bit 12 the feature set, 15 block erase, 13 crypto scramble, 14 overwrite.
    if identity.sanitize & 1 << 12 != 0 {
        for (bit, action) in [(15, Action::BlockErase), (13, Action::CryptoScramble), (14, Action::Overwrite)] {
            if identity.sanitize & 1 << bit != 0 {
                ways.push(Box::new(move || sanitize(drive, action, pause)));
            }
        }
    }
    if identity.has_security {
        for enhanced in [true, false] {
            if !enhanced || identity.has_enhanced() {
                ways.push(Box::new(move || erase_unit(drive, password, enhanced, pause)));
            }
        }
    }
    first(ways, "it has neither SANITIZE DEVICE nor the security feature set")
}

/// A SANITIZE DEVICE command (ACS-4, 7.36): the feature, and the key that the LBA field must have.
#[derive(Clone, Copy)]
enum Action {
    BlockErase,
    CryptoScramble,
    Overwrite,
}

impl Action {
    const fn name(self) -> &'static str {
        match self {
            Self::BlockErase => "ATA SANITIZE DEVICE (block erase)",
            Self::CryptoScramble => "ATA SANITIZE DEVICE (crypto scramble)",
            Self::Overwrite => "ATA SANITIZE DEVICE (overwrite)",
        }
    }

    const fn registers(self) -> Registers {
        let (features, count, lba) = match self {
            // "BkEr"
            Self::BlockErase => (0x0012, 0, 0x426B_4572),
            // "Cryp"
            Self::CryptoScramble => (0x0011, 0, 0x4372_7970),
            // One pass in count 3:0; "OW" in LBA 47:32, the pattern 0 below.
            Self::Overwrite => (0x0014, 1, 0x4F57_0000_0000),
        };
        Registers { features, count, lba, command: SANITIZE_DEVICE }
    }
}

/// SANITIZE STATUS EXT (ACS-4, 7.36.6): count bit 15 completed without error, 14 in progress, 13 frozen; progress in LBA 15:0.
fn status(drive: &dyn Drive) -> Result<Shown, String> {
    let registers = Registers { command: SANITIZE_DEVICE, ..Registers::default() };
    let what = "SANITIZE STATUS EXT";
    let shown = send(drive, what, cdb(registers, Moves::Nothing, true), Data::None, SHORT)?;
    shown.ok_or_else(|| format!("{what}: the registers are not shown"))
}

fn sanitize(drive: &dyn Drive, action: Action, pause: Pause<'_>) -> Ended {
    let method = action.name();
    match status(drive) {
        // What an earlier agent has begun is awaited, and then this follows.
        Ok(shown) if shown.count & 1 << 14 != 0 => {
            if let Err(ended) = await_end(drive, method, pause) {
                return ended;
            }
        }
        Ok(shown) if shown.count & 1 << 13 != 0 => {
            return Ended::Refused(format!("{method}: sanitizing is frozen until the drive has been without power"));
        }
        Ok(_) => {}
        Err(why) => return Ended::Refused(why),
    }
    if let Err(why) = send(drive, method, cdb(action.registers(), Moves::Nothing, true), Data::None, SHORT) {
        return Ended::Refused(why);
    }
    let shown = match await_end(drive, method, pause) {
        Ok(shown) => shown,
        Err(ended) => return ended,
    };
    if shown.count & 1 << 15 == 0 {
        return Ended::broken(method, format!("it has ended without success (count {:04X}h)", shown.count));
    }
    let word = match action {
        Action::CryptoScramble => "; that keys are gone is the drive's word alone, no reading proves it",
        _ => "",
    };
    let evidence = format!("count {:04X}h{word}", shown.count);
    Ended::Done { result: EraseResult::Purged, method: method.to_owned(), evidence }
}

fn await_end(drive: &dyn Drive, method: &str, pause: Pause<'_>) -> Result<Shown, Ended> {
    for _ in 0..MAX_LOOKS {
        match status(drive) {
            Ok(shown) if shown.count & 1 << 14 != 0 => {
                let progress = u16::try_from(shown.lba & 0xFFFF).unwrap_or(0);
                if !pause(Some(percent(progress))) {
                    return Err(Ended::broken(method, format!("left while it goes on (progress {progress:04X}h)")));
                }
            }
            Ok(shown) => return Ok(shown),
            Err(why) => return Err(Ended::broken(method, format!("how it goes on cannot be read: {why}"))),
        }
    }
    Err(Ended::broken(method, "it has not ended within a week"))
}

/// SECURITY ERASE UNIT (ACS-4, 7.40), enhanced or not: password, prepare, erase. The drive takes the password away with its success.
fn erase_unit(drive: &dyn Drive, password: &[u8], enhanced: bool, pause: Pause<'_>) -> Ended {
    let method = if enhanced { "ATA SECURITY ERASE UNIT (enhanced)" } else { "ATA SECURITY ERASE UNIT" };
    // Read anew: what has been tried before may have changed it.
    let before = match Identity::read(drive) {
        Ok(identity) => identity,
        Err(why) => return Ended::Refused(why),
    };
    let refused = if before.is_frozen() {
        "the firmware has frozen its security feature; have the firmware's setup not do so, plug the drive while the machine runs, or put the machine to sleep and wake it"
    } else if before.is_locked() {
        "it is locked by a password"
    } else if before.is_exhausted() {
        "it takes no password until it has been without power"
    } else if !pause(None) {
        "left before it was begun"
    } else {
        ""
    };
    if !refused.is_empty() {
        return Ended::Refused(format!("{method}: {refused}"));
    }
    // Bit 8 of word 0 stays 0: level High, which the master password opens, too.
    if let Err(why) = secure(drive, "SECURITY SET PASSWORD", SECURITY_SET_PASSWORD, &block(password, 0), SHORT) {
        return Ended::Refused(why);
    }
    let prepare = Registers { command: SECURITY_ERASE_PREPARE, ..Registers::default() };
    let prepared = send(drive, "SECURITY ERASE PREPARE", cdb(prepare, Moves::Nothing, false), Data::None, SHORT);
    // Bit 1 of word 0: enhanced.
    let erased = prepared.and_then(|_| {
        let block = block(password, u16::from(enhanced) << 1);
        secure(drive, method, SECURITY_ERASE_UNIT, &block, before.time(enhanced))
    });
    let after = Identity::read(drive);
    let still = after.as_ref().map_or(true, Identity::is_enabled);
    if let Err(why) = erased {
        let opened = if still { unlock(drive, password) } else { Lock::Opened };
        let lock = match opened {
            Lock::Open | Lock::Opened => "its password is taken away again".to_owned(),
            Lock::Shut(why) => format!("its password, which the host's record has, stays: {why}"),
        };
        return Ended::broken(method, format!("{why}; {lock}"));
    }
    let Ok(after) = after else {
        return Ended::broken(
            method,
            "the drive does not answer any more, so nobody knows whether its password is gone",
        );
    };
    if still && let Err(why) = disable(drive, password) {
        return Ended::broken(method, format!("it says that it is done, and its password cannot be taken away: {why}"));
    }
    // The enhanced mode writes to what was replaced, too (ACS-4, 7.40.3). What a flash drive keeps beside that is not said.
    let (result, worth) = match (enhanced, before.rotates()) {
        (true, true) => (EraseResult::Purged, ""),
        (true, false) => (
            EraseResult::Cleared,
            "; what a drive that does not rotate keeps beside its sectors is not promised to be erased",
        ),
        (false, _) => (EraseResult::Cleared, "; replaced sectors are not promised to be erased"),
    };
    let evidence = format!("word 128 was {:04X}h, is {:04X}h{worth}", before.security, after.security);
    Ended::Done { result, method: method.to_owned(), evidence }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{Exchange, Script};
    use super::*;

    const WORD: &[u8] = b"Metamorph-0123456789abcdef012345";

    /// IDENTIFY DEVICE (ACS-4, 7.13): PIO data-in, one block.
    fn identify(words: &[(usize, u16)]) -> Exchange {
        let mut back = vec![0; 512];
        for (word, value) in words {
            back[2 * word..2 * word + 2].copy_from_slice(&value.to_le_bytes());
        }
        let sent = vec![0x85, 0x08, 0x0E, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xEC, 0];
        Exchange { sent, back, ..Exchange::default() }
    }

    /// A drive with security (word 82 bit 1), this status (word 128), times of 20 and 10 minutes, and this rotation.
    fn secured(security: u16, rotation: u16) -> Exchange {
        identify(&[(82, 0x0002), (89, 10), (90, 5), (128, security), (217, rotation)])
    }

    /// A security command: PIO data-out, one block with word 0 and the password.
    fn security(command: u8, word_0: u8) -> Exchange {
        let sent = vec![0x85, 0x0A, 0x06, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, command, 0];
        Exchange { sent, out: [&[word_0, 0], WORD].concat(), ..Exchange::default() }
    }

    /// An answer with registers: descriptor format, key 1, 00h/1Dh, and an ATA Status Return descriptor (SAT-4, 12.2.5).
    fn registers(error: u8, count: u16, lba_low: u16, status: u8) -> Vec<u8> {
        let [count_high, count_low] = count.to_be_bytes();
        let [lba_high, lba] = lba_low.to_be_bytes();
        let head = [0x72, 0x01, 0x00, 0x1D, 0, 0, 0, 14];
        let shown = [0x09, 12, 0x01, error, count_high, count_low, 0, lba, 0, lba_high, 0, 0, 0x40, status];
        [&head[..], &shown].concat()
    }

    fn aborted(exchange: Exchange) -> Exchange {
        // ABORTED COMMAND, with ERROR in the status and ABORT in the error register
        let mut sense = registers(0x04, 0, 0, 0x51);
        (sense[1], sense[2], sense[3]) = (0x0B, 0, 0);
        Exchange { status: 2, sense, ..exchange }
    }

    fn prepare() -> Exchange {
        let sent = vec![0x85, 0x06, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xF3, 0];
        Exchange { sent, status: 2, sense: registers(0, 0, 0, 0x50), ..Exchange::default() }
    }

    #[test]
    fn registers_are_of_the_descriptor_format_alone() {
        let told = registers(0, 0x8000, 0, 0x50);
        for (code, is_shown) in [(0x72, true), (0x73, true), (0xF2, true), (0x70, false), (0x71, false), (0, false)] {
            let sense = [&[code][..], &told[1..]].concat();
            assert_eq!(Shown::read(&sense).is_some(), is_shown, "{code:02X}h");
        }
    }

    fn run(exchanges: Vec<Exchange>) -> Ended {
        purge(&Script::new(exchanges), WORD, &|_| true)
    }

    #[test]
    fn an_enhanced_erase_of_a_rotating_drive_is_a_purge() {
        let erase = Exchange { time: Some(Duration::from_secs(600) + MORE_TIME), ..security(0xF4, 0b10) };
        let ended = run(vec![
            secured(0x0021, 7200),
            secured(0x0021, 7200),
            security(0xF1, 0),
            prepare(),
            erase,
            secured(0x0021, 7200),
        ]);
        let evidence = "word 128 was 0021h, is 0021h".to_owned();
        let method = "ATA SECURITY ERASE UNIT (enhanced)".to_owned();
        assert_eq!(ended, Ended::Done { result: EraseResult::Purged, method, evidence });
    }

    #[test]
    fn what_the_specification_does_not_promise_is_no_purge() {
        // (enhanced there, rotation): a flash drive; two that do not say what they are; a drive without the enhanced mode
        for (status, rotation, word) in
            [(0x0021, 1, 0b10), (0x0021, 0, 0b10), (0x0021, 0xFFFF, 0b10), (0x0001, 7200, 0)]
        {
            let all = vec![
                secured(status, rotation),
                secured(status, rotation),
                security(0xF1, 0),
                prepare(),
                security(0xF4, word),
                secured(status, rotation),
            ];
            assert!(matches!(run(all), Ended::Done { result: EraseResult::Cleared, .. }), "{rotation}");
        }
    }

    #[test]
    fn an_identity_that_did_not_come_whole_is_none() {
        let short = Exchange { missing: 256, ..secured(0x0021, 7200) };
        let ended = run(vec![short]);
        assert!(matches!(&ended, Ended::Refused(why) if why.contains("256 bytes")), "{ended:?}");
    }

    #[test]
    fn a_frozen_drive_is_left_with_advice() {
        let frozen = 0x0029;
        let ended = run(vec![secured(frozen, 7200), secured(frozen, 7200), secured(frozen, 7200)]);
        assert!(matches!(&ended, Ended::Refused(why) if why.contains("frozen") && why.contains("sleep")), "{ended:?}");
    }

    #[test]
    fn an_erase_that_fails_leaves_no_password() {
        let all = vec![
            secured(0x0001, 7200),
            secured(0x0001, 7200),
            security(0xF1, 0),
            prepare(),
            aborted(security(0xF4, 0)),
            secured(0x0003, 7200),
            secured(0x0003, 7200),
            security(0xF6, 0),
        ];
        assert!(
            matches!(run(all), Ended::Broken { why, .. } if why.contains("aborted") && why.contains("taken away again"))
        );
    }

    #[test]
    fn a_drive_that_falls_silent_may_have_kept_its_password_and_that_is_said() {
        let silent = |exchange: Exchange| Exchange { silent: true, ..exchange };
        let all = vec![
            secured(0x0001, 7200),
            secured(0x0001, 7200),
            security(0xF1, 0),
            prepare(),
            security(0xF4, 0),
            silent(secured(0, 0)),
        ];
        assert!(matches!(run(all), Ended::Broken { why, .. } if why.contains("nobody knows")));
    }

    #[test]
    fn a_drive_that_was_left_locked_is_opened_by_the_recorded_password() {
        let locked = vec![secured(0x0007, 7200), security(0xF2, 0), security(0xF6, 0)];
        assert_eq!(unlock(&Script::new(locked), WORD), Lock::Opened);
        // The power came back before the drive locked itself, or another agent has unlocked it.
        let enabled = vec![secured(0x0003, 7200), security(0xF6, 0)];
        assert_eq!(unlock(&Script::new(enabled), WORD), Lock::Opened);
        let others = vec![secured(0x0003, 7200), aborted(security(0xF6, 0))];
        assert_eq!(unlock(&Script::new(others), WORD), Lock::Open);
        assert_eq!(unlock(&Script::new(vec![secured(0x0001, 7200)]), WORD), Lock::Open);
    }

    #[test]
    fn a_lock_that_is_somebody_elses_stays_and_is_tried_once() {
        let locked = vec![secured(0x0007, 7200), aborted(security(0xF2, 0))];
        assert!(matches!(unlock(&Script::new(locked), WORD), Lock::Shut(why) if why.contains("not the one recorded")));
        for status in [0x0017, 0x000F] {
            assert!(
                matches!(unlock(&Script::new(vec![secured(status, 0)]), WORD), Lock::Shut(why) if why.contains("off and on"))
            );
        }
    }

    /// SANITIZE DEVICE, extended and without data; features, count and LBA as ACS-4, 7.36 has them.
    fn sanitize(features: u8, count: u8, lba: [u8; 6]) -> Exchange {
        let [l0, l1, l2, l3, l4, l5] = lba;
        let sent = vec![0x85, 0x07, 0x20, 0, features, 0, count, l3, l0, l4, l1, l5, l2, 0, 0xB4, 0];
        Exchange { sent, status: 2, sense: registers(0, 0, 0, 0x50), ..Exchange::default() }
    }

    fn status(count: u16, progress: u16) -> Exchange {
        Exchange { sense: registers(0, count, progress, 0x50), ..sanitize(0, 0, [0; 6]) }
    }

    #[test]
    fn a_block_erase_is_preferred_and_awaited() {
        let all = vec![
            // feature set, crypto scramble, overwrite, block erase
            identify(&[(59, 0xF000), (82, 0x0002), (128, 0x0029)]),
            status(0, 0),
            sanitize(0x12, 0, [0x72, 0x45, 0x6B, 0x42, 0, 0]),
            status(0x4000, 0x8000),
            status(0x8000, 0xFFFF),
        ];
        let ended = run(all);
        assert!(
            matches!(&ended, Ended::Done { result: EraseResult::Purged, method, evidence }
            if method.contains("block erase") && evidence == "count 8000h"),
            "{ended:?}"
        );
    }

    #[test]
    fn crypto_scramble_and_overwrite_have_their_keys() {
        let crypto = vec![
            identify(&[(59, 0x3000)]),
            status(0, 0),
            sanitize(0x11, 0, [0x70, 0x79, 0x72, 0x43, 0, 0]),
            status(0x8000, 0),
        ];
        assert!(matches!(run(crypto), Ended::Done { evidence, .. } if evidence.contains("no reading proves it")));
        let overwrite = vec![
            identify(&[(59, 0x5000)]),
            status(0, 0),
            sanitize(0x14, 1, [0, 0, 0, 0, 0x57, 0x4F]),
            status(0x8000, 0),
        ];
        assert!(matches!(run(overwrite), Ended::Done { method, .. } if method.contains("overwrite")));
    }

    #[test]
    fn a_sanitize_without_success_is_broken_and_a_frozen_one_is_followed_by_the_next_best() {
        let failed = vec![
            identify(&[(59, 0x9000), (82, 0x0002), (128, 0x0021)]),
            status(0, 0),
            sanitize(0x12, 0, [0x72, 0x45, 0x6B, 0x42, 0, 0]),
            status(0x0000, 0xFFFF),
        ];
        assert!(matches!(run(failed), Ended::Broken { .. }));
        let frozen = vec![
            identify(&[(59, 0x9000), (82, 0x0002), (128, 0x0001)]),
            status(0x2000, 0),
            secured(0x0001, 7200),
            security(0xF1, 0),
            prepare(),
            security(0xF4, 0),
            secured(0x0001, 7200),
        ];
        assert!(matches!(run(frozen), Ended::Done { evidence, .. } if evidence.contains("frozen")));
    }

    #[test]
    fn times_are_read_in_both_forms() {
        let time = |told| Identity { times: [told, 0], ..Identity::default() }.time(false);
        assert_eq!(time(10), Duration::from_secs(1200) + MORE_TIME);
        assert_eq!(time(0x8000 | 300), Duration::from_secs(36_000) + MORE_TIME);
        assert_eq!([time(0), time(0xFF), time(0xFFFF)], [UNTOLD; 3]);
    }
}
