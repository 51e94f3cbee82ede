def union_games(plan): return ()
