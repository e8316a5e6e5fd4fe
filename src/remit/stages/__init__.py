"""What the steps are: plan, work, review; prompts, answers, the round loop."""
