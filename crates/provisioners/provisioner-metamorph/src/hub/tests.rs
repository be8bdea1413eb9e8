//! What agents report, and what they are answered.

use super::*;
use agent_protocol::{Action, Leave, Progress};

fn key() -> HostKey {
    HostKey { namespace: "n".into(), name: "h".into(), uid: "u".into() }
}

fn report(boot: &str, generation: u64, sequence: u64, state: AgentState) -> Report {
    Report {
        protocol: 1,
        version: "t".into(),
        host: "u".into(),
        generation,
        boot_id: boot.into(),
        sequence,
        state,
        machine: None,
        firmware: None,
        wait_seconds: 30,
        logs: vec![],
    }
}

fn boot(generation: u64) -> AgentBoot {
    AgentBoot { generation, ..AgentBoot::default() }
}

/// With the key of that boot.
async fn say(hub: &Arc<Hub>, report: Report) -> Result<Directive, Refusal> {
    let key = format!("key of {}", report.boot_id);
    hub.report(report, Some(key)).await
}

fn id(boot: &str) -> CommandId {
    CommandId { operation: "op".into(), step: "s".into(), attempt: 1, boot_id: boot.into() }
}

fn leave(boot: &str) -> Command {
    Command { id: id(boot), action: Action::Leave { how: Leave::Reboot } }
}

/// The record of a host that wishes whatever is ordered.
fn wished() -> Arc<dyn Record> {
    Arc::new(provisioner_kit::MemoryRecord::default())
}

#[tokio::test(start_paused = true)]
async fn a_new_boot_is_news_until_the_work_is_tried_and_once_a_minute() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    assert!(!hub.has_news("u"));
    hub.take(&report("b1", 1, 1, AgentState::Idle), None, None).unwrap();
    assert!(hub.has_news("u"));
    hub.acknowledge_news("u");
    hub.take(&report("b1", 1, 2, AgentState::Idle), None, None).unwrap();
    assert!(!hub.has_news("u"), "the same boot");
    hub.expect(&key(), Some(&boot(2)));
    hub.take(&report("b2", 2, 1, AgentState::Idle), None, None).unwrap();
    assert!(!hub.has_news("u"), "too soon");
    tokio::time::advance(NEWS).await;
    assert!(hub.has_news("u"));
    hub.forget_agent("u");
    assert!(!hub.has_news("u"), "it is gone");
}

#[tokio::test(start_paused = true)]
async fn a_command_reaches_an_idle_agent_at_once_and_only_the_boot_it_is_for() {
    let waker = Arc::new(Waker::default());
    let mut woken = waker.subscribe();
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    let waiting = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { say(&hub, report("b1", 1, 1, AgentState::Idle)).await }
    });
    assert_eq!(woken.recv().await, Some(provisioner::WakeUp { key: key() }));
    assert_eq!(hub.command("u", leave("b0"), &wished()), CommandState::Given);
    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());
    assert_eq!(hub.command("u", leave("b1"), &wished()), CommandState::Given);
    assert_eq!(waiting.await.unwrap().unwrap().command, Some(leave("b1")));
}

#[tokio::test(start_paused = true)]
async fn who_reports_again_is_answered_once() {
    let hub = Hub::new(Arc::default(), Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    let begun = Instant::now();
    let earlier = (1..=100).map(|number| {
        let hub = Arc::clone(&hub);
        tokio::spawn(async move { say(&hub, report("b1", 1, number, AgentState::Idle)).await })
    });
    let earlier: Vec<_> = earlier.collect();
    tokio::task::yield_now().await;
    let last = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { say(&hub, report("b1", 1, 101, AgentState::Idle)).await }
    });
    for report in earlier {
        assert_eq!(report.await.unwrap().unwrap(), Directive::default());
    }
    assert!(begun.elapsed() < Duration::from_secs(1) && !last.is_finished());
    assert_eq!(hub.command("u", leave("b1"), &wished()), CommandState::Given);
    assert_eq!(last.await.unwrap().unwrap().command, Some(leave("b1")));
}

/// It may have begun: only its next report tells. Who has given it up has told so, and has it not begun later.
#[tokio::test(start_paused = true)]
async fn an_agent_with_an_order_in_hand_is_waited_for_as_one_at_work_and_does_not_begin_when_it_was_given_up() {
    let (silence, grace) = (Duration::from_secs(90), Duration::from_secs(60));
    let hub = Hub::new(Arc::default(), silence, grace, Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    hub.command("u", leave("b1"), &wished());
    assert_eq!(say(&hub, report("b1", 1, 1, AgentState::Idle)).await.unwrap().command, Some(leave("b1")));
    tokio::time::advance(silence + Duration::from_secs(10)).await;
    assert!(hub.agent("u", 1).is_some() && hub.is_still_ordered("u", &id("b1")).await);
    tokio::time::advance(silence * IN_WORK).await;
    assert!(hub.agent("u", 1).is_some(), "as long as one at work, from when it is noticed");
    tokio::time::advance(grace).await;
    assert!(hub.agent("u", 1).is_none());
    assert!(!hub.is_still_ordered("u", &id("b1")).await);
    // One that has told that it has nothing to do is given up as before.
    hub.ends("u", "op");
    assert_eq!(say(&hub, report("b1", 1, 2, AgentState::Idle)).await.unwrap(), Directive::default());
    assert!(hub.agent("u", 1).is_some() && !hub.is_still_ordered("u", &id("b1")).await);
    tokio::time::advance(silence + Duration::from_secs(10)).await;
    assert!(hub.agent("u", 1).is_none());
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_held_until_it_is_acknowledged() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    let finished = AgentState::Finished { command: id("b1"), outcome: Outcome::Leaving };
    let quiet = say(&hub, report("b1", 1, 1, finished.clone())).await.unwrap();
    assert_eq!(quiet, Directive::default());
    assert_eq!(hub.command("u", leave("b1"), &wished()), CommandState::Finished(Outcome::Leaving));
    hub.acknowledge("u", &id("b1"));
    let answer = say(&hub, report("b1", 1, 2, finished)).await.unwrap();
    assert_eq!(answer.acknowledged, Some(id("b1")));
}

#[tokio::test(start_paused = true)]
async fn an_outcome_recorded_by_an_earlier_process_gives_way_to_the_next_command() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    let before = CommandId { step: "before".into(), ..id("b1") };
    let finished =
        AgentState::Finished { command: before.clone(), outcome: Outcome::Wiped { disks: vec![], left: vec![] } };
    let waiting = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { say(&hub, report("b1", 1, 1, finished)).await }
    });
    tokio::task::yield_now().await;
    assert_eq!(hub.command("u", leave("b1"), &wished()), CommandState::Given);
    assert_eq!(waiting.await.unwrap().unwrap(), Directive { acknowledged: Some(before), command: None });
    let answer = say(&hub, report("b1", 1, 2, AgentState::Idle)).await.unwrap();
    assert_eq!(answer.command, Some(leave("b1")));
}

#[tokio::test(start_paused = true)]
async fn no_order_and_no_leave_are_given_by_a_process_that_does_not_lead() {
    let waker = Arc::new(Waker::default());
    let leads = Arc::new(std::sync::atomic::AtomicBool::new(true));
    let may_act: MayAct = {
        let leads = Arc::clone(&leads);
        Arc::new(move || leads.load(std::sync::atomic::Ordering::Relaxed))
    };
    let set = |on| leads.store(on, std::sync::atomic::Ordering::Relaxed);
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), may_act);
    hub.expect(&key(), Some(&boot(1)));
    assert_eq!(say(&hub, report("b1", 1, 1, AgentState::Idle)).await.unwrap(), Directive::default());
    // The order was decided on while it led; the Lease ends before the agent asks.
    assert_eq!(hub.command("u", leave("b1"), &wished()), CommandState::Given);
    set(false);
    assert_eq!(say(&hub, report("b1", 1, 2, AgentState::Idle)).await.unwrap(), Directive::default());
    set(true);
    assert_eq!(say(&hub, report("b1", 1, 3, AgentState::Idle)).await.unwrap().command, Some(leave("b1")));
    let finished = AgentState::Finished { command: id("b1"), outcome: Outcome::Leaving };
    set(false);
    hub.acknowledge("u", &id("b1"));
    assert_eq!(say(&hub, report("b1", 1, 4, finished.clone())).await.unwrap(), Directive::default());
    set(true);
    assert_eq!(say(&hub, report("b1", 1, 5, finished)).await.unwrap().acknowledged, Some(id("b1")));
}

#[tokio::test(start_paused = true)]
async fn an_older_generation_and_a_repeated_report_are_refused() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(2)));
    assert_eq!(say(&hub, report("b1", 1, 1, AgentState::Idle)).await, Err(Refusal::Superseded));
    assert!(say(&hub, report("b2", 2, 5, AgentState::Idle)).await.is_ok());
    assert_eq!(say(&hub, report("b2", 2, 5, AgentState::Idle)).await, Err(Refusal::Stale));
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_was_seen_is_remembered_when_it_is_forgotten() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(2)));
    assert!(!hub.has_seen("u", 2));
    say(&hub, report("b1", 2, 1, AgentState::Idle)).await.unwrap();
    hub.forget_agent("u");
    assert!(hub.agent("u", 2).is_none());
    assert!(hub.has_seen("u", 2) && !hub.has_seen("u", 3));
}

#[tokio::test(start_paused = true)]
async fn a_silent_agent_is_taken_for_dead() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    say(&hub, report("b1", 1, 1, AgentState::Idle)).await.unwrap();
    assert!(hub.agent("u", 1).is_some());
    tokio::time::advance(Duration::from_secs(91)).await;
    assert!(hub.agent("u", 1).is_none());
}

#[tokio::test(start_paused = true)]
async fn a_generation_is_the_first_boots_and_its_keys() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    say(&hub, report("b1", 1, 1, AgentState::Idle)).await.unwrap();
    // Another boot, the same boot with another key, and with none.
    assert_eq!(say(&hub, report("b2", 1, 1, AgentState::Idle)).await, Err(Refusal::Contested));
    for other in [Some("another".to_owned()), None] {
        assert_eq!(hub.report(report("b1", 1, 9, AgentState::Idle), other.clone()).await, Err(Refusal::Contested));
        assert_eq!(hub.admit("u", 1, other.as_deref()), Err(Refusal::Contested));
    }
    assert_eq!(hub.any_agent("u").unwrap().boot_id, "b1");
    assert!(say(&hub, report("b1", 1, 10, AgentState::Idle)).await.is_ok());
    // The next generation is open again, the one before is not.
    hub.expect(&key(), Some(&boot(2)));
    assert!(say(&hub, report("b3", 2, 1, AgentState::Idle)).await.is_ok());
    assert_eq!(say(&hub, report("b1", 1, 11, AgentState::Idle)).await, Err(Refusal::Superseded));
}

#[tokio::test(start_paused = true)]
async fn a_restart_opens_a_generation_to_nobody() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    // Before the journal has been read, nobody is heard.
    assert_eq!(say(&hub, report("thief", 3, 1, AgentState::Idle)).await, Err(Refusal::Unknown));
    let waiting = tokio::spawn({
        let hub = Arc::clone(&hub);
        async move { say(&hub, report("b1", 3, 7, AgentState::Idle)).await }
    });
    tokio::task::yield_now().await;
    let recorded = AgentBoot { boot_id: Some("b1".into()), key_digest: Some("key of b1".into()), ..boot(3) };
    hub.expect(&key(), Some(&recorded));
    assert!(waiting.await.unwrap().is_ok(), "who reports before the first look waits for it");
    assert_eq!(say(&hub, report("thief", 3, 2, AgentState::Idle)).await, Err(Refusal::Contested));
}

#[tokio::test(start_paused = true)]
async fn a_boot_whose_work_has_ended_may_leave_and_nothing_else() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    let recorded = AgentBoot { boot_id: Some("b1".into()), key_digest: Some("key of b1".into()), ..boot(1) };
    hub.expect(&key(), Some(&recorded));
    say(&hub, report("b1", 1, 1, AgentState::Idle)).await.unwrap();
    hub.expect(&key(), Some(&AgentBoot { retired: true, ..recorded }));
    assert!(hub.any_agent("u").is_none());
    assert_eq!(say(&hub, report("b1", 1, 2, AgentState::Idle)).await, Err(Refusal::Superseded));
    let wiped = AgentState::Finished { command: id("b1"), outcome: Outcome::Wiped { disks: vec![], left: vec![] } };
    assert_eq!(say(&hub, report("b1", 1, 3, wiped)).await, Err(Refusal::Superseded));
    // The server died before it could say so.
    let leaving = AgentState::Finished { command: id("b1"), outcome: Outcome::Leaving };
    hub.acknowledge("u", &id("b1"));
    let answer = say(&hub, report("b1", 1, 4, leaving)).await.unwrap();
    assert_eq!(answer.acknowledged, Some(id("b1")));
}

#[tokio::test(start_paused = true)]
async fn an_agent_in_work_may_report_first_when_it_was_the_server_that_was_away() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    let running = AgentState::Running { command: id("b1"), progress: Progress::default() };
    for (round, state) in
        [running, AgentState::Finished { command: id("b1"), outcome: Outcome::Leaving }].into_iter().enumerate()
    {
        let say = |sequence| hub.report(Report { wait_seconds: 0, ..report("b1", 1, sequence, state.clone()) }, None);
        say(2 * round as u64 + 1).await.unwrap();
        // The process stood still: whoever looks first after it sees an agent that is silent for an hour.
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(hub.agent("u", 1).is_some(), "{state:?}");
        tokio::time::advance(Duration::from_secs(59)).await;
        assert!(hub.agent("u", 1).is_some());
        say(2 * round as u64 + 2).await.unwrap();
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert!(hub.agent("u", 1).is_some(), "it is heard again: another silence is another one");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(hub.agent("u", 1).is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn another_attempt_of_the_same_step_and_a_leave_are_never_acknowledged_by_the_way() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    let wiped = AgentState::Finished { command: id("b1"), outcome: Outcome::Wiped { disks: vec![], left: vec![] } };
    say(&hub, report("b1", 1, 1, wiped.clone())).await.unwrap();
    let again = Command { id: CommandId { attempt: 2, ..id("b1") }, ..leave("b1") };
    assert_eq!(hub.command("u", again, &wished()), CommandState::Given);
    assert_eq!(say(&hub, report("b1", 1, 2, wiped)).await.unwrap(), Directive::default());

    let leaving = AgentState::Finished { command: id("b1"), outcome: Outcome::Leaving };
    say(&hub, report("b1", 1, 3, leaving.clone())).await.unwrap();
    let other = Command { id: CommandId { step: "wipe".into(), ..id("b1") }, ..leave("b1") };
    assert_eq!(hub.command("u", other, &wished()), CommandState::Given);
    assert_eq!(say(&hub, report("b1", 1, 4, leaving)).await.unwrap(), Directive::default());
}

#[tokio::test(start_paused = true)]
async fn an_agent_that_writes_may_be_silent_for_longer() {
    let waker = Arc::new(Waker::default());
    let hub = Hub::new(waker, Duration::from_secs(90), Duration::from_secs(60), Arc::new(|| true));
    hub.expect(&key(), Some(&boot(1)));
    let running = AgentState::Running { command: id("b1"), progress: Progress::default() };
    say(&hub, report("b1", 1, 1, running)).await.unwrap();
    tokio::time::advance(Duration::from_secs(541)).await;
    assert!(hub.agent("u", 1).is_some(), "it is told late: its time begins now");
    tokio::time::advance(Duration::from_secs(61)).await;
    assert!(hub.agent("u", 1).is_none());
}
