"""Who is asked: the model port, pools, provider adapters, and the scripted provider."""
