import math

import pytest

from outlive.diagnose.alarms import Alarm, AlarmLimits, Alarms
from outlive.wire.values import Value

ALIVE = {"alive": True, "attempt": 1}
GB = 10**9


def kinds(alarms):
    return [(a.kind, a.state) for a in alarms]


def drive(alarms, until_s, every_s=30.0, start_s=0.0, facts=ALIVE, each=None):
    """Tick through a span of time; return all that came out, with its time."""
    out = []
    now_s = start_s
    while now_s <= until_s:
        if each is not None:
            each(now_s)
        out += [(now_s, a) for a in alarms.tick(now_s, facts)]
        now_s += every_s
    return out


def losses(alarms, values, start_s=0.0, first_step=0, **extra):
    out = []
    for i, value in enumerate(values):
        now_s = start_s + 10.0 * i
        alarms.on_metric(dict({"step": first_step + i, "loss": value, "source": "kv"}, **extra), now_s)
        out += alarms.tick(now_s, ALIVE)
    return out


# -- stall


def test_stall_needs_the_floor_or_five_median_intervals():
    alarms = Alarms()
    for i in range(10):
        alarms.on_metric({"step": i, "loss": 1.0}, i * 10.0)
    assert alarms.stall_limit_s() == 600.0
    slow = Alarms()
    for i in range(10):
        slow.on_metric({"step": i, "loss": 1.0}, i * 300.0)
    assert slow.stall_limit_s() == 1500.0


def test_stall_is_raised_once_and_cleared_once():
    alarms = Alarms()
    for i in range(10):
        alarms.on_metric({"step": i, "loss": 1.0}, i * 10.0)
    got = drive(alarms, 3000, start_s=100)
    assert [(a.kind, a.state) for _, a in got] == [("stall", "raised")]
    assert 690 < got[0][0] < 760 and got[0][1].severity == "error"
    alarms.on_metric({"step": 11, "loss": 1.0}, 3010.0)
    assert kinds(alarms.tick(3020.0, ALIVE)) == [("stall", "cleared")]
    assert alarms.tick(3050.0, ALIVE) == []


def test_a_pause_that_ended_by_itself_is_learned():
    alarms = Alarms()
    alarms.on_metric({"step": 1, "loss": 1.0}, 0.0)
    assert len(drive(alarms, 1200)) == 1
    alarms.on_metric({"step": 2, "loss": 1.0}, 1200.0)
    assert alarms.stall_limit_s() == 1800.0


def test_before_the_first_metric_and_in_quiet_phases_silence_may_last_longer():
    alarms = Alarms()
    got = drive(alarms, 2400)
    assert [a.kind for _, a in got] == ["stall"] and got[0][0] > 1800
    quiet = Alarms()
    quiet.on_metric({"step": 1, "loss": 1.0}, 0.0)
    assert drive(quiet, 3500, facts=dict(ALIVE, phase="evaluation")) == []


def test_buffered_output_with_advancing_cpu_is_quiet():
    alarms = Alarms()
    alarms.on_metric({"step": 1, "loss": 1.0}, 0.0)
    assert drive(alarms, 3000, each=lambda t: alarms.on_activity("cpu", t)) == []


def test_an_advancing_artifact_is_progress_for_ever():
    alarms = Alarms()
    alarms.on_metric({"step": 1, "loss": 1.0}, 0.0)
    assert drive(alarms, 20000, 100.0, each=lambda t: alarms.on_activity("artifact", t)) == []


def test_spinning_for_hours_without_output_is_told():
    alarms = Alarms()
    alarms.on_metric({"step": 1, "loss": 1.0}, 0.0)
    got = drive(alarms, 5000, each=lambda t: alarms.on_activity("gpu", t))
    assert [(a.kind, a.severity) for _, a in got] == [("stall", "warning")] and got[0][0] > 3600


def test_a_program_without_metrics_may_only_log():
    alarms = Alarms()
    assert drive(alarms, 20000, 100.0, each=lambda t: alarms.on_activity("log", t)) == []


def test_unknown_or_dead_work_does_not_stall():
    for facts in ({}, {"alive": None}, {"alive": False}):
        assert drive(Alarms(), 5000, facts=facts) == []


def test_our_own_sleep_is_not_held_against_the_work():
    alarms = Alarms()
    alarms.on_metric({"step": 1, "loss": 1.0}, 0.0)
    alarms.tick(10.0, ALIVE)
    assert alarms.tick(50_000.0, ALIVE) == []


def test_unknown_activity_is_an_error():
    with pytest.raises(ValueError):
        Alarms().on_activity("magic", 0.0)


# -- numbers


def test_two_nan_points_raise_and_finite_points_clear():
    alarms = Alarms()
    assert kinds(losses(alarms, [2.0, math.nan])) == []
    got = losses(alarms, [math.nan, math.nan], 100.0, 2)
    assert kinds(got) == [("nan", "raised")] and got[0].evidence["loss"] == "nan" and "step 2" in got[0].sentence
    assert kinds(losses(alarms, [1.0, 1.0, 1.0, 1.0], 200.0, 4)) == [("nan", "cleared")]


def test_the_same_step_from_two_ranks_is_one_point():
    alarms = Alarms()
    for _ in range(4):
        alarms.on_metric({"step": 7, "loss": math.nan}, 1.0)
    assert alarms.tick(2.0, ALIVE) == []


def test_zero_loss_with_nan_gradient_is_nan_too():
    alarms = Alarms()
    for epoch in (0.18, 0.19):
        alarms.on_metric({"loss": 0.0, "grad_norm": math.nan, "epoch": epoch}, 1.0)
    assert kinds(alarms.tick(2.0, ALIVE)) == [("nan", "raised")]


def test_a_scaler_finding_its_level_is_no_alarm_and_its_floor_is():
    alarms = Alarms()
    scale = 65536.0
    for i in range(12):
        alarms.on_metric({"skipped": 1, "loss_scale": scale, "source": "scaler"}, float(i))
        alarms.on_metric({"step": i, "loss": 2.0, "grad_norm": math.inf}, float(i))
        scale /= 2
    assert alarms.tick(12.0, ALIVE) == []
    for i in range(6):
        alarms.on_metric({"skipped": 1, "loss_scale": 1.0, "source": "scaler"}, 20.0 + i)
    assert kinds(alarms.tick(30.0, ALIVE)) == [("nan", "raised")]


def test_wire_points_work_as_well():
    alarms = Alarms()
    for step in (1, 2):
        alarms.on_metric({"step": step, "loss": "nan"}, float(step))
    assert kinds(alarms.tick(3.0, ALIVE)) == [("nan", "raised")]


def noisy(mean, count, spread=0.3):
    return [mean + spread * math.sin(12.9898 * i + 78.233 * (i % 7)) for i in range(count)]


def test_a_noisy_falling_loss_does_not_diverge():
    values = [v + 3.0 * math.exp(-i / 100.0) for i, v in enumerate(noisy(1.0, 800))]
    assert kinds(losses(Alarms(), values)) == []


def test_a_loss_that_jumps_and_stays_up_diverges_once_and_clears_once():
    alarms = Alarms()
    assert losses(alarms, noisy(2.4, 100, 0.02)) == []
    got = losses(alarms, noisy(7.0, 50, 0.5), 1000.0, 100)
    assert kinds(got) == [("divergence", "raised")] and got[0].evidence["step"] < 110
    assert kinds(losses(alarms, noisy(2.4, 60, 0.02), 2000.0, 150)) == [("divergence", "cleared")]


def test_one_spike_is_no_divergence():
    values = noisy(2.4, 60, 0.02) + [9.0] + noisy(2.4, 60, 0.02)
    assert losses(Alarms(), values) == []


def test_a_restart_of_the_learning_rate_or_another_phase_warms_up_again():
    alarms = Alarms()
    assert losses(alarms, noisy(1.0, 60, 0.02), lr=1e-4) == []
    assert losses(alarms, noisy(3.0, 60, 0.02), 1000.0, 60, lr=1e-3) == []
    other = Alarms()
    losses(other, noisy(1.0, 60, 0.02))
    other.tick(700.0, dict(ALIVE, phase="stage2"))
    facts = dict(ALIVE, phase="stage2")
    for i, value in enumerate(noisy(3.0, 60, 0.02)):
        other.on_metric({"step": 100 + i, "loss": value, "source": "kv"}, 700.0 + i)
        assert other.tick(700.0 + i, facts) == []


def test_divergence_can_be_switched_off():
    alarms = Alarms(AlarmLimits(divergence=False))
    assert losses(alarms, [1.0] * 50 + [100.0] * 50) == []


# -- resources


def disk(free, inodes_free=10**6):
    return dict(
        ALIVE,
        disks=[
            {
                "path": "/data",
                "bytes_total": 100 * GB,
                "bytes_free": free,
                "inodes_total": 10**6,
                "inodes_free": inodes_free,
            }
        ],
    )


def test_disk_bytes_with_time_left_and_hysteresis():
    alarms = Alarms()
    out = []
    for i in range(20):
        out += alarms.tick(i * 30.0, disk((10 - i * 0.4) * GB))
    assert kinds(out) == [("disk_bytes", "raised")]
    assert out[0].subject == "/data" and 100 < out[0].evidence["full_in_s"] < 800 and "full in about" in out[0].sentence
    assert alarms.tick(700.0, disk(5.5 * GB)) == []
    assert kinds(alarms.tick(730.0, disk(20 * GB))) == [("disk_bytes", "cleared")]


def test_disk_inodes_are_their_own_alarm_and_zero_tables_are_unknown():
    alarms = Alarms()
    assert kinds(alarms.tick(0.0, disk(50 * GB, 1000))) == [("disk_inodes", "raised")]
    none = dict(
        ALIVE, disks=[{"path": "/b", "bytes_total": None, "bytes_free": None, "inodes_total": 0, "inodes_free": 0}]
    )
    assert Alarms().tick(0.0, none) == []


def test_memory_must_stay_high():
    def facts(used):
        return dict(ALIVE, memory_used_bytes=used, memory_limit_bytes=100)

    alarms = Alarms()
    assert alarms.tick(0.0, facts(97)) == [] and alarms.tick(5.0, facts(80)) == [] and alarms.tick(6.0, facts(97)) == []
    assert kinds(alarms.tick(20.0, facts(97))) == [("memory_near_limit", "raised")]
    assert alarms.tick(30.0, facts(92)) == []
    assert kinds(alarms.tick(40.0, facts(70))) == [("memory_near_limit", "cleared")]


def test_throttling_is_judged_over_a_window():
    def facts(i, share):
        return dict(ALIVE, cpu_periods=int(i * 100), cpu_throttled_periods=int(i * 100 * share))

    alarms = Alarms()
    out = [(i, a) for i in range(30) for a in alarms.tick(i * 30.0, facts(i, 0.5))]
    assert kinds([a for _, a in out]) == [("cpu_throttled", "raised")] and out[0][0] * 30 >= 300
    calm = Alarms()
    assert [a for i in range(30) for a in calm.tick(i * 30.0, facts(i, 0.05))] == []


def test_overdue_report():
    alarms = Alarms()
    assert alarms.tick(0.0, {"report_due_s": 100.0}) == [] and alarms.tick(150.0, {"report_due_s": 100.0}) == []
    assert kinds(alarms.tick(200.0, {"report_due_s": 100.0})) == [("overdue_report", "raised")]
    assert kinds(alarms.tick(210.0, {"report_due_s": 300.0})) == [("overdue_report", "cleared")]


def test_hung_after_the_work_is_complete_is_not_a_stall():
    facts = dict(ALIVE, artifacts_ok=True, last_step=100, total_steps=100)
    alarms = Alarms()
    alarms.on_metric({"step": 100, "loss": 1.0}, 0.0)
    got = drive(alarms, 3000, facts=facts)
    assert [(a.kind, a.state) for _, a in got] == [("hung", "raised")] and 600 < got[0][0] < 700
    assert drive(Alarms(), 1700, facts=dict(facts, last_step=50)) == []
    busy = Alarms()
    assert drive(busy, 3000, facts=facts, each=lambda t: busy.on_activity("cpu", t)) == []


def test_gpu_lost_needs_two_looks_or_a_hard_fault():
    alarms = Alarms()
    few = dict(ALIVE, gpus_expected=8, gpus_seen=7)
    assert alarms.tick(0.0, few) == [] and alarms.tick(10.0, dict(few, gpus_seen=None)) == []
    assert kinds(alarms.tick(20.0, few)) == [("gpu_lost", "raised")]
    assert kinds(alarms.tick(30.0, dict(few, gpus_seen=8))) == [("gpu_lost", "cleared")]
    assert kinds(Alarms().tick(0.0, dict(ALIVE, gpu_error="Xid 79"))) == [("gpu_lost", "raised")]


def test_a_restart_at_zero_despite_a_checkpoint():
    alarms = Alarms()
    losses(alarms, [2.0] * 20, first_step=1480)
    alarms.new_attempt(300.0)
    alarms.on_metric({"step": 0, "loss": 9.0, "source": "kv"}, 310.0)
    got = alarms.tick(311.0, dict(ALIVE, attempt=2, checkpoint_step=1450))
    assert kinds(got) == [("step_regressed", "raised")] and got[0].evidence["checkpoint_step"] == 1450
    alarms.on_metric({"step": 1460, "loss": 2.0, "source": "kv"}, 400.0)
    assert kinds(alarms.tick(401.0, dict(ALIVE, attempt=2, checkpoint_step=1450))) == [("step_regressed", "cleared")]


def test_a_resume_from_the_checkpoint_and_a_new_epoch_are_no_regress():
    alarms = Alarms()
    losses(alarms, [2.0] * 20, first_step=1480)
    alarms.new_attempt(300.0)
    alarms.on_metric({"step": 1451, "loss": 2.0, "source": "kv"}, 310.0)
    assert alarms.tick(311.0, dict(ALIVE, attempt=2, checkpoint_step=1450)) == []
    bars = Alarms()
    for epoch in range(3):
        for step in (1, 50, 100):
            bars.on_metric({"step": step, "total": 100, "epoch": float(epoch), "local": True, "source": "tqdm"}, 1.0)
            assert bars.tick(2.0, dict(ALIVE, checkpoint_step=80)) == []


def test_a_restarted_supervisor_finds_the_restart_at_zero_too():
    alarms = Alarms()
    alarms.on_metric({"step": 3, "loss": 9.0, "source": "kv"}, 1.0)
    assert kinds(alarms.tick(2.0, dict(ALIVE, attempt=2, checkpoint_step=1000))) == [("step_regressed", "raised")]


def test_what_an_earlier_life_raised_is_not_raised_again_but_is_cleared():
    first = Alarms()
    first.tick(0.0, disk(1 * GB))
    second = Alarms(raised=first.raised())
    assert second.tick(0.0, disk(1 * GB)) == []
    assert kinds(second.tick(10.0, disk(50 * GB))) == [("disk_bytes", "cleared")]


def test_alarms_travel():
    (alarm,) = Alarms().tick(0.0, disk(1 * GB))
    assert isinstance(alarm, Value) and Alarm.from_wire(alarm.to_wire()) == alarm


def test_a_time_told_again_after_our_sleep_is_no_silence():
    alarms = Alarms()
    alarms.on_metric({"step": 1, "loss": 1.0}, 0.0)
    alarms.on_activity("log", 5.0)
    alarms.tick(10.0, ALIVE)
    assert alarms.tick(5000.0, ALIVE) == []
    alarms.on_activity("log", 5.0)
    assert alarms.tick(5010.0, ALIVE) == []


def test_a_new_attempt_forgets_what_stood_and_says_again_what_holds():
    alarms = Alarms()
    assert kinds(alarms.tick(0.0, disk(1 * GB))) == [("disk_bytes", "raised")]
    alarms.new_attempt(10.0)
    assert alarms.raised() == []
    assert kinds(alarms.tick(11.0, disk(1 * GB))) == [("disk_bytes", "raised")]
