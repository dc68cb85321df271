"""The schema of the database, step by step. A step that has been released is never changed."""

from __future__ import annotations

from sqlite_utils import Database, Migrations

APPLICATION_ID = 0x45504F43  # "EPOC": marks a file as a database of this program

migrations = Migrations("scheduler")


@migrations()
def jobs_profiles_facts(db: Database) -> None:
    db.execute(f"pragma application_id = {APPLICATION_ID}")
    # `seq` is the order of submission. Ids are found by their ends, so they are also stored
    # reversed. The long texts come last, so that a row's head can be read without them.
    db.execute("""
        create table jobs (
            seq integer primary key,
            id text not null unique,
            id_reversed text not null,
            user text not null,
            name text not null,
            project text not null,
            experiment text not null,
            submitted_at real not null,
            token text not null,
            priority integer not null,
            held integer not null,
            cancelled integer not null,
            max_epochs integer not null,
            memory_mib integer not null,
            epochs_done integer not null,
            attempts integer not null,
            eligible_at real not null,
            ran_seconds real not null,
            started_at real,
            ended_at real,
            outcome text,
            reason text not null,
            failures text not null,
            run text,
            spec text not null
        ) strict
    """)
    db.execute("create index jobs_by_end_of_id on jobs (id_reversed)")
    db.execute("create index jobs_live on jobs (seq) where outcome is null")
    # A listing filters and counts within one of these two, and reads only the rows it shows.
    # They contain only ended jobs: a report of a live job does not change them.
    listed = "outcome, project, experiment"
    db.execute(f"create index jobs_ended on jobs (seq, user, {listed}) where outcome is not null")
    db.execute(
        f"create index jobs_ended_by_user on jobs (user, seq, {listed}) where outcome is not null"
    )
    db.execute("""
        create table labels (
            key text not null,
            value text not null,
            seq integer not null references jobs,
            primary key (key, value, seq)
        ) strict, without rowid
    """)
    db.execute("""
        create table profiles (
            job_id text not null references jobs (id),
            attempt integer not null,
            epoch integer not null,
            rank integer not null,
            placement text not null,
            step_seconds real not null,
            epoch_seconds real not null,
            samples_per_second real not null,
            memory_mib integer not null,
            gpu_util real not null,
            at real not null,
            beside text not null,
            primary key (job_id, attempt, epoch, rank)
        ) strict, without rowid
    """)
    # A fact may be about a job that never existed: a foreign pod with our labels.
    db.execute("""
        create table facts (
            seq integer primary key,
            at real not null,
            kind text not null,
            job_id text,
            attempt integer,
            data text not null
        ) strict
    """)
    db.execute("create index facts_by_job on facts (job_id) where job_id is not null")


@migrations()
def what_was_learned(db: Database) -> None:
    db.execute("alter table jobs add column gpu_util real not null default 0.0")
    db.execute("alter table jobs add column restart_seconds real not null default 0.0")
    db.execute("alter table jobs add column measured text not null default '[]'")
    # Until now a run did not contain the number of epochs that it was started with.
    db.execute("""
        update jobs set run = json_set(run, '$.max_epochs', max_epochs)
        where outcome is null and run is not null
    """)
    db.execute("""
        create table learned (
            about text not null,
            name text not null,
            data text not null,
            primary key (about, name)
        ) strict, without rowid
    """)


@migrations()
def what_was_heard(db: Database) -> None:
    db.execute("""
        create table starts (
            start integer primary key,
            number integer not null,
            at real not null,
            decider blob not null,
            view blob not null
        ) strict
    """)
    db.execute("""
        create table steps (
            start integer not null,
            number integer not null,
            at real not null,
            events blob not null,
            digest blob not null,
            primary key (start, number)
        ) strict, without rowid
    """)


@migrations()
def what_memory_was_seen(db: Database) -> None:
    db.execute("alter table jobs add column peaks text not null default '[]'")
    db.execute("alter table jobs add column profiles_ignored integer not null default 0")


@migrations()
def who_was_given_a_token(db: Database) -> None:
    # Rows of revoked tokens stay, so that a number always means the same token.
    db.execute("""
        create table tokens (
            id integer primary key,
            digest blob not null unique,
            user text not null,
            name text not null,
            issued_at real not null,
            expires_at real not null,
            used_at real,
            revoked_at real
        ) strict
    """)


@migrations()
def how_many_steps_were_counted(db: Database) -> None:
    db.execute("alter table profiles add column steps integer not null default 0")


@migrations()
def ended_jobs_are_found_by_name(db: Database) -> None:
    db.execute("create index jobs_ended_by_name on jobs (name, seq) where outcome is not null")


@migrations()
def profiles_say_whom_they_count(db: Database) -> None:
    # Until now `beside` named all jobs that held memory on the GPUs, but `measured` of the same
    # jobs named only those that trained there. From now on both name those that train.
    db.execute("alter table profiles add column beside_counts text not null default 'holders'")


@migrations()
def tokens_of_nodes(db: Database) -> None:
    # A token of a node's agent has no user ('').
    db.execute("alter table tokens add column node text not null default ''")


@migrations()
def damaged_rows_are_set_aside(db: Database) -> None:
    db.execute("create table damaged (at real not null, data blob not null) strict")


@migrations()
def how_many_epochs_are_in_the_weights(db: Database) -> None:
    db.execute("alter table jobs add column trained text")
    db.execute("alter table profiles add column trained integer")


@migrations()
def sessions_of_browsers(db: Database) -> None:
    # `digest` is keyed with the secret of the state folder.
    db.execute("""
        create table sessions (
            digest blob primary key,
            user text not null,
            issued_by integer references tokens (id),
            login_at real not null,
            expires_at real not null,
            renewed integer not null
        ) strict, without rowid
    """)


@migrations()
def what_runs_used_by_day(db: Database) -> None:
    # `day` counts from 1970-01-01 in UTC. What runs used that ended before now is not counted.
    db.execute("""
        create table usage (
            day integer not null,
            user text not null,
            project text not null,
            gpu_seconds real not null,
            run_seconds real not null,
            runs integer not null,
            primary key (day, user, project)
        ) strict, without rowid
    """)


@migrations()
def what_is_counted(db: Database) -> None:
    # Sums over all steps, which metrics show; deleting old facts does not change them.
    db.execute("""
        create table counts (
            name text not null,
            label text not null,
            value real not null,
            primary key (name, label)
        ) strict, without rowid
    """)


@migrations()
def names_of_ended_jobs_are_searched(db: Database) -> None:
    # With the outcome in it, no row is read to know that a job has ended.
    db.execute("drop index jobs_ended_by_name")
    db.execute(
        "create index jobs_ended_by_name on jobs (name, seq, outcome) where outcome is not null"
    )


@migrations()
def what_people_write_on_jobs(db: Database) -> None:
    db.execute("""
        create table annotations (
            job_id text not null,
            key text not null,
            value text not null,
            primary key (job_id, key)
        ) strict, without rowid
    """)


@migrations()
def how_the_jobs_of_a_sweep_compare(db: Database) -> None:
    db.execute("alter table profiles add column score real")


@migrations()
def which_jobs_are_awaited(db: Database) -> None:
    db.execute("alter table jobs add column awaits text")
