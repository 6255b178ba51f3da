"""Every setting, typed, frozen and documented; TOML in and out. Imports no torch.

settings   Settings, the whole of them; from TOML and back; every error in words
sections   what all runs have: env, policy, schedule, optimizer, curiosity, curriculum, evaluation, stopping, checkpoint, evidence, proof
algorithms what each algorithm has: ppo, dqn, sac, reinforce
engine     EngineSettings, the whole of them where somebody else collects the episodes
"""

from .algorithms import DQNSettings as DQNSettings
from .algorithms import LearningSettings as LearningSettings
from .algorithms import OffPolicySettings as OffPolicySettings
from .algorithms import OnPolicySettings as OnPolicySettings
from .algorithms import PPOSettings as PPOSettings
from .algorithms import REINFORCESettings as REINFORCESettings
from .algorithms import SACSettings as SACSettings
from .engine import EngineSettings as EngineSettings
from .sections import CheckpointSettings as CheckpointSettings
from .sections import CuriositySettings as CuriositySettings
from .sections import CurriculumSettings as CurriculumSettings
from .sections import CurriculumStage as CurriculumStage
from .sections import EnvSettings as EnvSettings
from .sections import EvaluationSettings as EvaluationSettings
from .sections import EvidenceSettings as EvidenceSettings
from .sections import OptimizerSettings as OptimizerSettings
from .sections import PolicySettings as PolicySettings
from .sections import ProofSettings as ProofSettings
from .sections import ScheduleSettings as ScheduleSettings
from .sections import Section as Section
from .sections import StoppingSettings as StoppingSettings
from .settings import ALGORITHMS as ALGORITHMS
from .settings import Settings as Settings
from .settings import explained as explained
from .settings import field_type as field_type
from .settings import load_settings as load_settings
from .settings import parse_settings as parse_settings
from .settings import parsed as parsed
from .settings import setting_names as setting_names
from .settings import to_toml as to_toml
from .settings import value_of as value_of
