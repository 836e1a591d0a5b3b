"""Run files: the settings of a run, reading them with helpful errors, and writing them resolved.

Knows TOML and pydantic; knows nothing of tasks, models or nodes, so a mistake in a run file is answered without torch.
"""

from motet.config.dump import dump_run_file, json_schema
from motet.config.fields import Setting, all_settings
from motet.config.load import load_run_file, with_overrides
from motet.config.replaying import check_replayable, replay_settings, with_rounds
from motet.config.settings import (
    PRESETS,
    AdmissionSettings,
    EvaluationSettings,
    GenerationSettings,
    LearnerSettings,
    LoraSettings,
    MethodName,
    MethodSettings,
    NodeSettings,
    PromptSettings,
    RolloutSettings,
    Rule,
    RunFile,
    RunSettings,
    SwarmSettings,
    TaskSettings,
    Weights,
)
from motet.config.study_file import ArmSettings, PairSettings, StudyFile, load_study_file
from motet.config.study_plan import Planned, merged, plan_runs

__all__ = [
    "PRESETS",
    "AdmissionSettings",
    "ArmSettings",
    "EvaluationSettings",
    "GenerationSettings",
    "LearnerSettings",
    "LoraSettings",
    "MethodName",
    "MethodSettings",
    "NodeSettings",
    "PairSettings",
    "Planned",
    "PromptSettings",
    "RolloutSettings",
    "Rule",
    "RunFile",
    "RunSettings",
    "Setting",
    "StudyFile",
    "SwarmSettings",
    "TaskSettings",
    "Weights",
    "all_settings",
    "check_replayable",
    "dump_run_file",
    "json_schema",
    "load_run_file",
    "load_study_file",
    "merged",
    "plan_runs",
    "replay_settings",
    "with_overrides",
    "with_rounds",
]
