"""Studies of the repository: papers reproduced, public measurements and monotonicity; no part of the wheel."""
